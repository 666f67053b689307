#version 450
layout(local_size_x=256) in;
layout(std430,set=0,binding=0) readonly buffer B0{uint d[];} b0;
layout(std430,set=0,binding=1) writeonly buffer O0{uint d[];} o0;
layout(push_constant) uniform P{uint words[9];};
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
void main(){
  uint count=W(0), cols=W(1), stride=gl_NumWorkGroups.x*256u;
  for(uint i=gl_GlobalInvocationID.x;i<count;i+=stride){
    uint row=i/cols, col=i-row*cols;
    float x0=U2F(b0.d[W(2)+(row)%W(4)*W(7)+((row)/W(4))%W(3)*W(6)+(((row)/W(4))/W(3))*W(5)+col*W(8)]);
    float v0=(x0);
    o0.d[i]=nn_canon(F2U(v0));
    if(count-i<=stride) break;
  }
}
