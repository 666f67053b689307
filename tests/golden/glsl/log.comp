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
HL mkHL(float h,float l){return HL(h,l);}
FN uint nn_canon(uint u){return SEL((u&0x7fffffffu)>0x7f800000u,QNAN,u);}
FN HL nn_logc(uint ix,int k0){
  ix-=0x3f3504f3u; int k=(INT(ix)>>23)+k0; float m=U2F((ix&0x7fffffu)+0x3f3504f3u);
  float f=m-1.0f;
  float fh=U2F(F2U(f)&0xfffff000u); float fl=f-fh;
  float hh=(0.5f*fh)*fh; float hl=(0.5f*fl)*(f+fh);
  float s=f-hh; float d=(f-s)-hh;
  float p=C(0x3d8a3cd7u);
  p=p*f+C(0xbdef06a3u); p=p*f+C(0x3df361b7u); p=p*f+C(0xbdfe13c4u); p=p*f+C(0x3e119db1u);
  p=p*f+C(0xbe2aae24u); p=p*f+C(0x3e4cd23cu); p=p*f+C(0xbe800003u); p=p*f+C(0x3eaaaaa4u);
  float lo=((f*f)*f)*p+(d-hl);
  float kf=FLT(k); float a=kf*C(0x3f317200u);
  float t=a+s; float er=(a-t)+s;
  er=SEL(k==0,0.0f,er);
  return mkHL(t,er+(lo+kf*C(0x35bfbe8eu)));
}
FN float nn_log(float x){
  uint u=F2U(x), ax=u&0x7fffffffu;
  uint dn=F2U(FLT(INT(ax)));
  uint ix=SEL(ax<0x00800000u,dn,ax);
  ix=SEL(ax>=0x7f800000u,0x3f800000u,ix);
  HL r=nn_logc(ix,SEL(ax<0x00800000u,-149,0)); uint y=F2U(r.h+r.l);
  y=SEL(u==0x7f800000u,0x7f800000u,y);
  y=SEL(u>0x80000000u||ax>0x7f800000u,QNAN,y);
  y=SEL(ax==0u,0xff800000u,y);
  return U2F(y);
}
void main(){
  uint count=W(0), cols=W(1), stride=gl_NumWorkGroups.x*256u, groups=count/4u+min(count&3u,1u);
  for(uint v=gl_GlobalInvocationID.x;v<groups;v+=stride){
    uint base=v*4u;
    if(count-base>=4u){
      uvec4 w0=c0.d[v];
      uvec4 y0;
      {
        float x0=U2F(w0.x);
        float v0=nn_log(x0);
        y0.x=nn_canon(F2U(v0));
      }
      {
        float x0=U2F(w0.y);
        float v0=nn_log(x0);
        y0.y=nn_canon(F2U(v0));
      }
      {
        float x0=U2F(w0.z);
        float v0=nn_log(x0);
        y0.z=nn_canon(F2U(v0));
      }
      {
        float x0=U2F(w0.w);
        float v0=nn_log(x0);
        y0.w=nn_canon(F2U(v0));
      }
      q0.d[v]=y0;
    } else {
      uint end=min(count-base,4u);
      for(uint lane=0u;lane<end;lane++){
        uint i=base+lane, row=i/cols, col=i-row*cols;
        float x0=U2F(b0.d[i]);
        float v0=nn_log(x0);
        o0.d[i]=nn_canon(F2U(v0));
      }
    }
    if(groups-v<=stride) break;
  }
}
