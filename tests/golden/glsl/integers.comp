#version 450
layout(local_size_x=256) in;
layout(std430,set=0,binding=0) readonly buffer B0{uint d[];} b0;
layout(std430,set=0,binding=1) writeonly buffer O0{uint d[];} o0;
layout(std430,set=0,binding=0) readonly buffer C0{uvec4 d[];} c0;
layout(std430,set=0,binding=1) writeonly buffer Q0{uvec4 d[];} q0;
layout(push_constant) uniform P{uint words[5];};
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
FN uint nn_idiv(uint a,uint b){
  uint x=SEL((a>>31)!=0u,0u-a,a), y=SEL((b>>31)!=0u,0u-b,b); y=SEL(y==0u,1u,y);
  uint q=x/y, r=x-q*y; uint f=0u-q-SEL(r!=0u,1u,0u); q=SEL(((a^b)>>31)!=0u,f,q);
  return SEL(b==0u,0u,q);
}
FN uint nn_shr(uint a,uint b){return UINT(INT(a)>>INT(SEL(b>31u,31u,b)));}
void main(){
  uint count=W(0), cols=W(1), stride=gl_NumWorkGroups.x*256u, groups=count/4u+min(count&3u,1u);
  for(uint v=gl_GlobalInvocationID.x;v<groups;v+=stride){
    uint base=v*4u;
    if(count-base>=4u){
      uvec4 w0=c0.d[v];
      uvec4 y0;
      {
        float x0=U2F(w0.x);
        float v0=U2F(F2U(x0)*F2U(U2F(W(2))));
        float v1=U2F(nn_shr(F2U(x0),F2U(U2F(W(3)))));
        float v2=U2F(F2U(v0)+F2U(v1));
        float v3=U2F(nn_idiv(F2U(x0),F2U(U2F(W(4)))));
        float v4=U2F(F2U(v2)^F2U(v3));
        y0.x=F2U(v4);
      }
      {
        float x0=U2F(w0.y);
        float v0=U2F(F2U(x0)*F2U(U2F(W(2))));
        float v1=U2F(nn_shr(F2U(x0),F2U(U2F(W(3)))));
        float v2=U2F(F2U(v0)+F2U(v1));
        float v3=U2F(nn_idiv(F2U(x0),F2U(U2F(W(4)))));
        float v4=U2F(F2U(v2)^F2U(v3));
        y0.y=F2U(v4);
      }
      {
        float x0=U2F(w0.z);
        float v0=U2F(F2U(x0)*F2U(U2F(W(2))));
        float v1=U2F(nn_shr(F2U(x0),F2U(U2F(W(3)))));
        float v2=U2F(F2U(v0)+F2U(v1));
        float v3=U2F(nn_idiv(F2U(x0),F2U(U2F(W(4)))));
        float v4=U2F(F2U(v2)^F2U(v3));
        y0.z=F2U(v4);
      }
      {
        float x0=U2F(w0.w);
        float v0=U2F(F2U(x0)*F2U(U2F(W(2))));
        float v1=U2F(nn_shr(F2U(x0),F2U(U2F(W(3)))));
        float v2=U2F(F2U(v0)+F2U(v1));
        float v3=U2F(nn_idiv(F2U(x0),F2U(U2F(W(4)))));
        float v4=U2F(F2U(v2)^F2U(v3));
        y0.w=F2U(v4);
      }
      q0.d[v]=y0;
    } else {
      uint end=min(count-base,4u);
      for(uint lane=0u;lane<end;lane++){
        uint i=base+lane, row=i/cols, col=i-row*cols;
        float x0=U2F(b0.d[i]);
        float v0=U2F(F2U(x0)*F2U(U2F(W(2))));
        float v1=U2F(nn_shr(F2U(x0),F2U(U2F(W(3)))));
        float v2=U2F(F2U(v0)+F2U(v1));
        float v3=U2F(nn_idiv(F2U(x0),F2U(U2F(W(4)))));
        float v4=U2F(F2U(v2)^F2U(v3));
        o0.d[i]=F2U(v4);
      }
    }
    if(groups-v<=stride) break;
  }
}
