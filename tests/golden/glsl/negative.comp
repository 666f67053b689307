#version 450
layout(local_size_x=256) in;
layout(std430,set=0,binding=0) readonly buffer B0{uint d[];} b0;
layout(std430,set=0,binding=1) writeonly buffer O0{uint d[];} o0;
layout(std430,set=0,binding=0) readonly buffer C0{uvec4 d[];} c0;
layout(std430,set=0,binding=1) writeonly buffer Q0{uvec4 d[];} q0;
layout(push_constant) uniform P{uint words[2];};
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
uint nn_nought(){return gl_WorkGroupID.y;}
FN float nn_neg(float x){return U2F(F2U(x)^(0x80000000u|nn_nought()));}
void main(){
  uint count=W(0), cols=W(1), stride=gl_NumWorkGroups.x*256u, groups=count/4u+min(count&3u,1u);
  for(uint v=gl_GlobalInvocationID.x;v<groups;v+=stride){
    uint base=v*4u;
    if(count-base>=4u){
      uvec4 w0=c0.d[v];
      uvec4 y0;
      {
        float x0=U2F(w0.x);
        float v0=nn_neg(x0);
        y0.x=nn_canon(F2U(v0));
      }
      {
        float x0=U2F(w0.y);
        float v0=nn_neg(x0);
        y0.y=nn_canon(F2U(v0));
      }
      {
        float x0=U2F(w0.z);
        float v0=nn_neg(x0);
        y0.z=nn_canon(F2U(v0));
      }
      {
        float x0=U2F(w0.w);
        float v0=nn_neg(x0);
        y0.w=nn_canon(F2U(v0));
      }
      q0.d[v]=y0;
    } else {
      uint end=min(count-base,4u);
      for(uint lane=0u;lane<end;lane++){
        uint i=base+lane, row=i/cols, col=i-row*cols;
        float x0=U2F(b0.d[i]);
        float v0=nn_neg(x0);
        o0.d[i]=nn_canon(F2U(v0));
      }
    }
    if(groups-v<=stride) break;
  }
}
