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
FK mkFK(float f,int k){return FK(f,k);}
FLK mkFLK(float f,float l,int k){return FLK(f,l,k);}
FN uint nn_canon(uint u){return SEL((u&0x7fffffffu)>0x7f800000u,QNAN,u);}
FN uint nn_round_pack(int e,uint m){
  if(e<=0){ int sh=1-e; if(sh>31){ m=SEL(m!=0u,1u,0u);} else { m=(m>>UINT(sh))|SEL((m<<UINT(32-sh))!=0u,1u,0u);} e=1; }
  if(e>=255) return 0x7f800000u;
  uint q=m>>8, r=m&255u; q+=SEL(r>128u||(r==128u&&(q&1u)!=0u),1u,0u);
  return (UINT(e-1)<<23)+q;
}
FN FLK nn_expe(float xh,float xl){
  float t=xh*C(0x3fb8aa3bu)+12582912.0f;
  float k=t-12582912.0f;
  float rh=xh-k*C(0x3f317200u);
  float rl=xl-k*C(0x35bfbe8eu);
  float r=rh+rl; float e=(rh-r)+rl;
  float p=C(0x394efbf9u);
  p=p*r+C(0x3ab6a66du); p=p*r+C(0x3c088988u); p=p*r+C(0x3d2aaa74u); p=p*r+C(0x3e2aaaaau); p=p*r+0.5f;
  p=(r*r)*p;
  float s=1.0f+r; float d=(1.0f-s)+r;
  float v=d+(p+e); float f=s+v;
  return mkFLK(f,(s-f)+v,INT(F2U(t))-0x4b400000);
}
FN FK nn_expc(float xh,float xl){FLK v=nn_expe(xh,xl);return mkFK(v.f,v.k);}
FN float nn_scale(float f,int k){ uint u=F2U(f), s=u&0x80000000u; int e=INT((u>>23)&255u)+k;
  if(UINT(e-1)<254u) return U2F(u+(UINT(k)<<23));
  return U2F(s|nn_round_pack(e,((u&0x7fffffu)|0x800000u)<<8)); }
FN float nn_erf(float x){
  uint u=F2U(x), ax=u&0x7fffffffu; float a=U2F(SEL(ax>0x40800000u,0x40800000u,ax));
  float z=a*a; float p=C(0x38a79effu);
  p=p*z+C(0xba530118u); p=p*z+C(0x3baa24d1u); p=p*z+C(0xbcdc008bu); p=p*z+C(0x3de716b2u); p=p*z+C(0xbec093a0u); p=p*z+C(0x3e0375d4u);
  float at=SEL(ax<0x20000000u,SEL(ax<0x00800000u,FLT(INT(ax&0x7fffffu))*C(0x15000000u),a*C(0x5f800000u)),a);
  float ys=at+at*p; ys=nn_scale(ys,SEL(ax<0x20000000u,-64,0));
  float q=C(0x37aeabf4u);
  q=q*a+C(0xb9e224ffu); q=q*a+C(0x3b882f66u); q=q*a+C(0xbccd74ffu); q=q*a+C(0x3ddda26bu); q=q*a+C(0x3f222693u); q=q*a+C(0x3f909313u); q=q*a+C(0xb9316c57u);
  FK v=nn_expc(-q,0.0f); float yl=1.0f-v.f*U2F(UINT(v.k+127)<<23);
  yl=SEL(ax>=0x407b0000u,1.0f,yl);
  uint y=SEL(ax<0x3f6c0000u,F2U(ys),F2U(yl)); y=SEL(ax==0u,0u,y);
  return U2F(SEL(ax>0x7f800000u,QNAN,y|(u&0x80000000u)));
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
        float v0=nn_erf(x0);
        y0.x=nn_canon(F2U(v0));
      }
      {
        float x0=U2F(w0.y);
        float v0=nn_erf(x0);
        y0.y=nn_canon(F2U(v0));
      }
      {
        float x0=U2F(w0.z);
        float v0=nn_erf(x0);
        y0.z=nn_canon(F2U(v0));
      }
      {
        float x0=U2F(w0.w);
        float v0=nn_erf(x0);
        y0.w=nn_canon(F2U(v0));
      }
      q0.d[v]=y0;
    } else {
      uint end=min(count-base,4u);
      for(uint lane=0u;lane<end;lane++){
        uint i=base+lane, row=i/cols, col=i-row*cols;
        float x0=U2F(b0.d[i]);
        float v0=nn_erf(x0);
        o0.d[i]=nn_canon(F2U(v0));
      }
    }
    if(groups-v<=stride) break;
  }
}
