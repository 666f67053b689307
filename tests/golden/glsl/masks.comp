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
FN int nn_key(uint u){int i=INT(u);return i^((i>>31)&0x7fffffff);}
FN uint nn_isnan(uint u){return SEL((u&0x7fffffffu)>0x7f800000u,1u,0u);}
FN uint nn_zero(uint u){return SEL((u&0x7fffffffu)==0u,0u,u);}
FN uint nn_lt(uint a,uint b){uint n=nn_isnan(a)|nn_isnan(b);return SEL(n==0u&&nn_key(nn_zero(a))<nn_key(nn_zero(b)),0x3f800000u,0u);}
uint load0(uint a){ uint u=(b0.d[a>>2]>>((a&3u)*8u))&255u; return SEL(u!=0u,0x3f800000u,0u); }
uvec4 quad0(uint q){ uint w=b0.d[q]; uvec4 u=uvec4(w&255u,(w>>8)&255u,(w>>16)&255u,w>>24); return uvec4(SEL(u.x!=0u,0x3f800000u,0u),SEL(u.y!=0u,0x3f800000u,0u),SEL(u.z!=0u,0x3f800000u,0u),SEL(u.w!=0u,0x3f800000u,0u)); }
void store0(uint a,uint u){
  uint shift=(a&3u)*8u;
  atomicAnd(o0.d[a>>2],~(255u<<shift));
  atomicOr(o0.d[a>>2],SEL((u&0x7fffffffu)!=0u,1u,0u)<<shift);
}
void put0(uint q,uvec4 y){
  uvec4 u=uvec4(SEL((y.x&0x7fffffffu)!=0u,1u,0u),SEL((y.y&0x7fffffffu)!=0u,1u,0u),SEL((y.z&0x7fffffffu)!=0u,1u,0u),SEL((y.w&0x7fffffffu)!=0u,1u,0u));
  o0.d[q]=u.x|(u.y<<8)|(u.z<<16)|(u.w<<24);
}
void main(){
  uint count=W(0), cols=W(1), stride=gl_NumWorkGroups.x*256u, groups=count/4u+min(count&3u,1u);
  for(uint v=gl_GlobalInvocationID.x;v<groups;v+=stride){
    uint base=v*4u;
    if(count-base>=4u){
      uvec4 w0=quad0(v);
      uvec4 w1=c1.d[v];
      uvec4 y0;
      {
        float x1=U2F(w1.x);
        float x0=U2F(w0.x);
        float v0=U2F(nn_lt(F2U(U2F(W(2))),F2U(x1)));
        float v1=U2F(F2U(x0)&F2U(v0));
        float v2=U2F(SEL((F2U(v1)&0x7fffffffu)!=0u,F2U(x1),F2U(U2F(W(3)))));
        float v3=U2F(nn_lt(F2U(U2F(W(2))),F2U(v2)));
        y0.x=F2U(v3);
      }
      {
        float x1=U2F(w1.y);
        float x0=U2F(w0.y);
        float v0=U2F(nn_lt(F2U(U2F(W(2))),F2U(x1)));
        float v1=U2F(F2U(x0)&F2U(v0));
        float v2=U2F(SEL((F2U(v1)&0x7fffffffu)!=0u,F2U(x1),F2U(U2F(W(3)))));
        float v3=U2F(nn_lt(F2U(U2F(W(2))),F2U(v2)));
        y0.y=F2U(v3);
      }
      {
        float x1=U2F(w1.z);
        float x0=U2F(w0.z);
        float v0=U2F(nn_lt(F2U(U2F(W(2))),F2U(x1)));
        float v1=U2F(F2U(x0)&F2U(v0));
        float v2=U2F(SEL((F2U(v1)&0x7fffffffu)!=0u,F2U(x1),F2U(U2F(W(3)))));
        float v3=U2F(nn_lt(F2U(U2F(W(2))),F2U(v2)));
        y0.z=F2U(v3);
      }
      {
        float x1=U2F(w1.w);
        float x0=U2F(w0.w);
        float v0=U2F(nn_lt(F2U(U2F(W(2))),F2U(x1)));
        float v1=U2F(F2U(x0)&F2U(v0));
        float v2=U2F(SEL((F2U(v1)&0x7fffffffu)!=0u,F2U(x1),F2U(U2F(W(3)))));
        float v3=U2F(nn_lt(F2U(U2F(W(2))),F2U(v2)));
        y0.w=F2U(v3);
      }
      put0(v,y0);
    } else {
      uint end=min(count-base,4u);
      for(uint lane=0u;lane<end;lane++){
        uint i=base+lane, row=i/cols, col=i-row*cols;
        float x1=U2F(b1.d[i]);
        float x0=U2F(load0(i));
        float v0=U2F(nn_lt(F2U(U2F(W(2))),F2U(x1)));
        float v1=U2F(F2U(x0)&F2U(v0));
        float v2=U2F(SEL((F2U(v1)&0x7fffffffu)!=0u,F2U(x1),F2U(U2F(W(3)))));
        float v3=U2F(nn_lt(F2U(U2F(W(2))),F2U(v2)));
        store0(i,F2U(v3));
      }
    }
    if(groups-v<=stride) break;
  }
}
