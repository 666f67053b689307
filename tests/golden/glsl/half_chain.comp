#version 450
layout(local_size_x=256) in;
layout(std430,set=0,binding=0) readonly buffer B0{uint d[];} b0;
layout(std430,set=0,binding=1) readonly buffer B1{uint d[];} b1;
layout(std430,set=0,binding=2) buffer O0{uint d[];} o0;
layout(std430,set=0,binding=0) readonly buffer C0{uvec4 d[];} c0;
layout(std430,set=0,binding=1) readonly buffer C1{uvec4 d[];} c1;
layout(std430,set=0,binding=2) writeonly buffer Q0{uvec4 d[];} q0;
layout(push_constant) uniform P{uint words[4];};
#define W(n) words[n]
#define FN
#define F2U floatBitsToUint
#define U2F uintBitsToFloat
#define SEL(c,a,b) mix(b,a,c)
#define INT(x) int(x)
#define UINT(x) uint(x)
#define FLT(x) float(x)
struct FK{float f;int k;}; struct HL{float h;float l;}; struct FLK{float f;float l;int k;};
#define QNAN 0x7fc00000u
#define C(h) U2F(h)
#define DIVSEED(a,b) ((a)/(b))
#define RSQSEED(a) inversesqrt(a)
FN uint nn_canon(uint u){return SEL((u&0x7fffffffu)>0x7f800000u,QNAN,u);}
FN uint nn_f32_to_f16(uint u){
  uint s=(u>>16)&0x8000u, a=u&0x7fffffffu, e=a>>23;
  uint n=a-0x38000000u; n=(n+0xfffu+((n>>13)&1u))>>13;
  uint m=(a&0x7fffffu)|0x800000u; uint sh=SEL(e>=102u,126u-e,24u+1u); sh=SEL(sh>25u,25u,sh);
  uint q=m>>sh, r=m&((1u<<sh)-1u), h=1u<<(sh-1u);
  q+=SEL(r>h||(r==h&&(q&1u)!=0u),1u,0u); q=SEL(e<101u,0u,q);
  uint o=SEL(a<0x38800000u,q,n);
  o=SEL(a>=0x47800000u,0x7c00u,o);
  return SEL(a>0x7f800000u,0x7e00u,o|s);
}
FN uint nn_f16_to_f32(uint h){
  uint s=(h&0x8000u)<<16, a=h&0x7fffu;
  uint n=(a<<13)+0x38000000u;
  uint z=a&0x3ffu; uint t=F2U(FLT(INT(z)));
  t=SEL(z==0u,0u,t-(24u<<23));
  uint o=SEL(a<0x400u,t,n);
  o=SEL(a>=0x7c00u,0x7f800000u,o);
  return SEL(a>0x7c00u,QNAN,o|s);
}
FN uint nn_f32_to_bf16(uint u){ uint o=(u+0x7fffu+((u>>16)&1u))>>16; return SEL((u&0x7fffffffu)>0x7f800000u,0x7fc0u,o);}
FN uint nn_bf16_to_f32(uint h){return nn_canon(h<<16);}
uint load0(uint a){
  uint f16=W(2)&1u, bf16=W(3)&1u;
  if((f16|bf16)==0u) return b0.d[a];
  uint h=(b0.d[a>>1]>>((a&1u)*16u))&0xffffu;
  return f16!=0u?nn_f16_to_f32(h):nn_bf16_to_f32(h);
}
uvec4 quad0(uint q){
  uint f16=W(2)&1u, bf16=W(3)&1u;
  if((f16|bf16)==0u) return c0.d[q];
  uint v=b0.d[q*2u], w=b0.d[q*2u+1u];
  uvec4 h=uvec4(v&0xffffu,v>>16,w&0xffffu,w>>16);
  if(f16!=0u) return uvec4(nn_f16_to_f32(h.x),nn_f16_to_f32(h.y),nn_f16_to_f32(h.z),nn_f16_to_f32(h.w));
  return uvec4(nn_bf16_to_f32(h.x),nn_bf16_to_f32(h.y),nn_bf16_to_f32(h.z),nn_bf16_to_f32(h.w));
}
uint load1(uint a){
  uint f16=W(2)&2u, bf16=W(3)&2u;
  if((f16|bf16)==0u) return b1.d[a];
  uint h=(b1.d[a>>1]>>((a&1u)*16u))&0xffffu;
  return f16!=0u?nn_f16_to_f32(h):nn_bf16_to_f32(h);
}
uvec4 quad1(uint q){
  uint f16=W(2)&2u, bf16=W(3)&2u;
  if((f16|bf16)==0u) return c1.d[q];
  uint v=b1.d[q*2u], w=b1.d[q*2u+1u];
  uvec4 h=uvec4(v&0xffffu,v>>16,w&0xffffu,w>>16);
  if(f16!=0u) return uvec4(nn_f16_to_f32(h.x),nn_f16_to_f32(h.y),nn_f16_to_f32(h.z),nn_f16_to_f32(h.w));
  return uvec4(nn_bf16_to_f32(h.x),nn_bf16_to_f32(h.y),nn_bf16_to_f32(h.z),nn_bf16_to_f32(h.w));
}
uint half0(uint u){ return (W(2)&0x10000u)!=0u?nn_f32_to_f16(u):nn_f32_to_bf16(u); }
void store0(uint a,uint u){
  if(((W(2)|W(3))&0x10000u)==0u){ o0.d[a]=nn_canon(u); return; }
  uint shift=(a&1u)*16u;
  atomicAnd(o0.d[a>>1],~(0xffffu<<shift));
  atomicOr(o0.d[a>>1],half0(u)<<shift);
}
void put0(uint q,uvec4 y){
  if(((W(2)|W(3))&0x10000u)==0u){
    q0.d[q]=uvec4(nn_canon(y.x),nn_canon(y.y),nn_canon(y.z),nn_canon(y.w));
    return;
  }
  o0.d[q*2u]=half0(y.x)|(half0(y.y)<<16);
  o0.d[q*2u+1u]=half0(y.z)|(half0(y.w)<<16);
}
void main(){
  uint count=W(0), cols=W(1), stride=gl_NumWorkGroups.x*256u, groups=count/4u+min(count&3u,1u);
  for(uint v=gl_GlobalInvocationID.x;v<groups;v+=stride){
    uint base=v*4u;
    if(count-base>=4u){
      uvec4 w0=quad0(v);
      uvec4 w1=quad1(v);
      uvec4 y0;
      {
        float x0=U2F(w0.x);
        float x1=U2F(w1.x);
        float v0=(x0)*(x0);
        float v1=(v0)+(x1);
        float v2=U2F(nn_f16_to_f32(nn_f32_to_f16(F2U(v1))));
        y0.x=F2U(v2);
      }
      {
        float x0=U2F(w0.y);
        float x1=U2F(w1.y);
        float v0=(x0)*(x0);
        float v1=(v0)+(x1);
        float v2=U2F(nn_f16_to_f32(nn_f32_to_f16(F2U(v1))));
        y0.y=F2U(v2);
      }
      {
        float x0=U2F(w0.z);
        float x1=U2F(w1.z);
        float v0=(x0)*(x0);
        float v1=(v0)+(x1);
        float v2=U2F(nn_f16_to_f32(nn_f32_to_f16(F2U(v1))));
        y0.z=F2U(v2);
      }
      {
        float x0=U2F(w0.w);
        float x1=U2F(w1.w);
        float v0=(x0)*(x0);
        float v1=(v0)+(x1);
        float v2=U2F(nn_f16_to_f32(nn_f32_to_f16(F2U(v1))));
        y0.w=F2U(v2);
      }
      put0(v,y0);
    } else {
      uint end=min(count-base,4u);
      for(uint lane=0u;lane<end;lane++){
        uint i=base+lane, row=i/cols, col=i-row*cols;
        float x0=U2F(load0(i));
        float x1=U2F(load1(i));
        float v0=(x0)*(x0);
        float v1=(v0)+(x1);
        float v2=U2F(nn_f16_to_f32(nn_f32_to_f16(F2U(v1))));
        store0(i,F2U(v2));
      }
    }
    if(groups-v<=stride) break;
  }
}
