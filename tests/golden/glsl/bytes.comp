#version 450
layout(local_size_x=256) in;
layout(std430,set=0,binding=0) readonly buffer B0{uint d[];} b0;
layout(std430,set=0,binding=1) buffer O0{uint d[];} o0;
layout(push_constant) uniform P{uint words[10];};
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
uint load0(uint a){ uint u=(b0.d[a>>2]>>((a&3u)*8u))&255u; return u; }
uvec4 quad0(uint q){ uint w=b0.d[q]; uvec4 u=uvec4(w&255u,(w>>8)&255u,(w>>16)&255u,w>>24); return u; }
void store0(uint a,uint u){
  uint shift=(a&3u)*8u;
  atomicAnd(o0.d[a>>2],~(255u<<shift));
  atomicOr(o0.d[a>>2],(u&255u)<<shift);
}
void put0(uint q,uvec4 y){
  uvec4 u=uvec4((y.x&255u),(y.y&255u),(y.z&255u),(y.w&255u));
  o0.d[q]=u.x|(u.y<<8)|(u.z<<16)|(u.w<<24);
}
void main(){
  uint count=W(0), cols=W(1), stride=gl_NumWorkGroups.x*256u;
  for(uint i=gl_GlobalInvocationID.x;i<count;i+=stride){
    uint row=i/cols, col=i-row*cols;
    float x0=U2F(load0(W(2)+(row)%W(4)*W(7)+((row)/W(4))%W(3)*W(6)+(((row)/W(4))/W(3))*W(5)+col*W(8)));
    float v0=U2F(F2U(x0)*F2U(U2F(W(9))));
    float v1=U2F(F2U(v0)&255u);
    float v2=U2F(F2U(v1)+F2U(x0));
    float v3=U2F(F2U(v2)&255u);
    store0(i,F2U(v3));
    if(count-i<=stride) break;
  }
}
