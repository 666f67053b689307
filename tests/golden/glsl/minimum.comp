#version 450
layout(local_size_x=256) in;
layout(std430,set=0,binding=0) readonly buffer B0{uint d[];} b0;
layout(std430,set=0,binding=1) writeonly buffer O0{uint d[];} o0;
layout(std430,set=0,binding=0) readonly buffer C0{uvec4 d[];} c0;
layout(std430,set=0,binding=1) writeonly buffer Q0{uvec4 d[];} q0;
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
FK mkFK(float f,int k){return FK(f,k);}
FLK mkFLK(float f,float l,int k){return FLK(f,l,k);}
HL mkHL(float h,float l){return HL(h,l);}
FN uint nn_canon(uint u){return SEL((u&0x7fffffffu)>0x7f800000u,QNAN,u);}
FN int nn_key(uint u){int i=INT(u);return i^((i>>31)&0x7fffffff);}
FN uint nn_isnan(uint u){return SEL((u&0x7fffffffu)>0x7f800000u,1u,0u);}
FN uint nn_min(uint a,uint b){uint m=SEL(nn_key(a)<=nn_key(b),a,b);return SEL((nn_isnan(a)|nn_isnan(b))!=0u,QNAN,m);}
FN uint nn_round_pack(int e,uint m){
  if(e<=0){ int sh=1-e; if(sh>31){ m=SEL(m!=0u,1u,0u);} else { m=(m>>UINT(sh))|SEL((m<<UINT(32-sh))!=0u,1u,0u);} e=1; }
  if(e>=255) return 0x7f800000u;
  uint q=m>>8, r=m&255u; q+=SEL(r>128u||(r==128u&&(q&1u)!=0u),1u,0u);
  return (UINT(e-1)<<23)+q;
}
FN float nn_top12(float x){return U2F(F2U(x)&0xfffff000u);}
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
FN float nn_recip(float t){
  float r=(t*t)*(t*C(0xbe632933u)+C(0x3faa5eeau))+(t*C(0xc03c1e26u)+C(0x403504dfu));
  return r+r*(1.0f-t*r);
}
FN float nn_scale(float f,int k){ uint u=F2U(f), s=u&0x80000000u; int e=INT((u>>23)&255u)+k;
  if(UINT(e-1)<254u) return U2F(u+(UINT(k)<<23));
  return U2F(s|nn_round_pack(e,((u&0x7fffffu)|0x800000u)<<8)); }
FN HL nn_logh(uint ix,int k0){
  ix-=0x3f3504f3u; float kf=FLT((INT(ix)>>23)+k0); float m=U2F((ix&0x7fffffu)+0x3f3504f3u);
  float c=SEL(m<C(0x3f4ff2e5u),C(0x3f420000u),SEL(m<C(0x3f6ed917u),C(0x3f5f0000u),SEL(m<C(0x3f8930beu),C(0x3f800000u),SEL(m<C(0x3f9d94afu),C(0x3f930000u),C(0x3fa90000u)))));
  float ch=SEL(m<C(0x3f4ff2e5u),C(0xbe8dfc00u),SEL(m<C(0x3f6ed917u),C(0xbe0d5000u),SEL(m<C(0x3f8930beu),C(0x00000000u),SEL(m<C(0x3f9d94afu),C(0x3e0db800u),C(0x3e8e4400u)))));
  float cl=SEL(m<C(0x3f4ff2e5u),C(0xb6cb1ad3u),SEL(m<C(0x3f6ed917u),C(0xb6adf890u),SEL(m<C(0x3f8930beu),C(0x00000000u),SEL(m<C(0x3f9d94afu),C(0x36ab54beu),C(0x36c60b4du)))));
  float n=m-c; float d=m+c; float dl=m-(d-c); float dh=nn_top12(d); dl=(d-dh)+dl;
  float r=nn_recip(d*0.70703125f)*0.70703125f;
  float q=n*r; float qh=nn_top12(q); float ql=q-qh;
  float e=((((n-qh*dh)-qh*dl)-ql*dh)-ql*dl)*r; float w=q+e; float z=w*w;
  float a=kf*C(0x3f317200u)+ch; float t=a+(q+q);
  float lo=(w*z)*(z*C(0x3ecd0996u)+C(0x3f2aaaa8u))+((e+e)+(cl+kf*C(0x35bfbe8eu)));
  return mkHL(t,((a-t)+(q+q))+lo);
}
FN float nn_pow(float x,float y){
  uint u=F2U(x), ax=u&0x7fffffffu, uy=F2U(y), ay=uy&0x7fffffffu;
  bool den=ax<0x00800000u; uint dn=F2U(FLT(INT(ax)));
  uint ix=SEL(den,dn,ax); ix=SEL(ax>=0x7f800000u||ax==0u,0x3f800000u,ix);
  HL r=nn_logh(ix,SEL(den,-149,0));
  float lh=r.h+r.l; float ll=(r.h-lh)+r.l;
  float yc=U2F(SEL(ay>0x6f000000u,(uy&0x80000000u)|0x6f000000u,uy));
  float a1=nn_top12(lh); float a2=lh-a1; float b1=nn_top12(yc); float b2=yc-b1;
  float ph=lh*yc; float pl=((a1*b1-ph)+a1*b2+a2*b1)+a2*b2;
  pl=pl+ll*yc;
  bool big=ph>130.0f, sml=ph<-110.0f;
  float xh=SEL(big,130.0f,SEL(sml,-110.0f,ph)); float xl=SEL(big||sml,0.0f,pl);
  FK v=nn_expc(xh,xl); uint o=F2U(nn_scale(v.f,v.k));
  uint ey=SEL(ay<0x3f800000u,127u,SEL(ay>=0x4b800000u,151u,ay>>23));
  uint m=((uy&0x7fffffu)|0x800000u)<<(ey-126u);
  uint frac=SEL(ay<0x3f800000u,1u,m&0xffffffu); uint odd=SEL(frac==0u,(m>>24)&1u,0u);
  o=SEL((frac&(0u-(u>>31)))!=0u,QNAN,o);
  uint lt=SEL(uy>=0x80000000u,0x7f800000u,0u);
  o=SEL(ax==0u,lt,o);
  o=SEL(ax==0x7f800000u,lt^0x7f800000u,o);
  o=SEL(ay==0x7f800000u,SEL(ax==0x3f800000u,ax,SEL(ax<0x3f800000u,lt,lt^0x7f800000u)),o);
  o|=u&(odd<<31);
  o=SEL(ax>0x7f800000u||ay>0x7f800000u,QNAN,o);
  o=SEL(ay==0u||u==0x3f800000u,0x3f800000u,o);
  return U2F(o);
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
        float v0=U2F(nn_min(F2U(x0),F2U(U2F(W(2)))));
        float v1=nn_pow(v0,U2F(W(3)));
        y0.x=nn_canon(F2U(v1));
      }
      {
        float x0=U2F(w0.y);
        float v0=U2F(nn_min(F2U(x0),F2U(U2F(W(2)))));
        float v1=nn_pow(v0,U2F(W(3)));
        y0.y=nn_canon(F2U(v1));
      }
      {
        float x0=U2F(w0.z);
        float v0=U2F(nn_min(F2U(x0),F2U(U2F(W(2)))));
        float v1=nn_pow(v0,U2F(W(3)));
        y0.z=nn_canon(F2U(v1));
      }
      {
        float x0=U2F(w0.w);
        float v0=U2F(nn_min(F2U(x0),F2U(U2F(W(2)))));
        float v1=nn_pow(v0,U2F(W(3)));
        y0.w=nn_canon(F2U(v1));
      }
      q0.d[v]=y0;
    } else {
      uint end=min(count-base,4u);
      for(uint lane=0u;lane<end;lane++){
        uint i=base+lane, row=i/cols, col=i-row*cols;
        float x0=U2F(b0.d[i]);
        float v0=U2F(nn_min(F2U(x0),F2U(U2F(W(2)))));
        float v1=nn_pow(v0,U2F(W(3)));
        o0.d[i]=nn_canon(F2U(v1));
      }
    }
    if(groups-v<=stride) break;
  }
}
