#version 450
layout(local_size_x=256) in;
layout(std430,set=0,binding=0) readonly buffer B0{uint d[];} b0;
layout(std430,set=0,binding=1) readonly buffer B1{uint d[];} b1;
layout(std430,set=0,binding=2) writeonly buffer O0{uint d[];} o0;
layout(std430,set=0,binding=0) readonly buffer C0{uvec4 d[];} c0;
layout(std430,set=0,binding=1) readonly buffer C1{uvec4 d[];} c1;
layout(std430,set=0,binding=2) writeonly buffer Q0{uvec4 d[];} q0;
layout(push_constant) uniform P{uint words[3];};
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
FN uint nn_div_core(uint ma,uint mb,float q0,int e){
  uint lt=SEL(ma<mb,1u,0u);
  uint N=ma<<lt; float q1=SEL(lt!=0u,q0+q0,q0);
  uint q=UINT(INT(q1*8388608.0f))-4u;
  uint rem=(N<<23)-q*mb;
  uint t=rem-(mb<<2); bool c=rem>=(mb<<2); rem=SEL(c,t,rem); q=SEL(c,q+4u,q);
  t=rem-(mb<<1); c=rem>=(mb<<1); rem=SEL(c,t,rem); q=SEL(c,q+2u,q);
  t=rem-mb; c=rem>=mb; rem=SEL(c,t,rem); q=SEL(c,q+1u,q);
  e-=INT(lt);
  if(e>0&&e<255){ q+=SEL((rem<<1)>mb,1u,0u); return (UINT(e-1)<<23)+q; }
  return nn_round_pack(e,(q<<8)|SEL((rem<<1)>mb,192u,SEL(rem!=0u,64u,0u)));
}
float nn_divn(float a,float b){uint ua=F2U(a),ub=F2U(b);uint s=(ua^ub)&0x80000000u;uint ma=ua&0x7fffffu,mb=ub&0x7fffffu;
  int ea=INT((ua>>23)&255u),eb=INT((ub>>23)&255u);
  return U2F(s|nn_div_core(ma|0x800000u,mb|0x800000u,DIVSEED(U2F(ma|0x3f800000u),U2F(mb|0x3f800000u)),ea-eb+127));}
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
FN float nn_tanh(float x){
  uint u=F2U(x), ax=u&0x7fffffffu; float a=U2F(SEL(ax>0x41200000u,0x41200000u,ax));
  float z=a*a; float p=C(0xbbba8671u);
  p=p*z+C(0x3ca8fc67u); p=p*z+C(0xbd5c1ad2u); p=p*z+C(0x3e08837bu); p=p*z+C(0xbeaaaa99u);
  float ys=a+(a*z)*p;
  FK v=nn_expc(a+a,0.0f); float t=v.f*U2F(UINT(v.k+127)<<23);
  float yl=1.0f-nn_divn(2.0f,t+1.0f);
  uint y=SEL(ax<0x3f200000u,F2U(ys),F2U(yl));
  y=SEL(ax<0x39800000u,ax,y);
  return U2F(SEL(ax>0x7f800000u,QNAN,y|(u&0x80000000u)));
}
void main(){
  uint count=W(0), cols=W(1), stride=gl_NumWorkGroups.x*256u, groups=count/4u+min(count&3u,1u);
  for(uint v=gl_GlobalInvocationID.x;v<groups;v+=stride){
    uint base=v*4u;
    if(count-base>=4u&&cols%4u==0u){
      uint row=base/cols, col=base-row*cols;
      uvec4 w0=c0.d[v];
      uvec4 w1=c1.d[col/4u];
      uvec4 y0;
      {
        float x0=U2F(w0.x);
        float x1=U2F(w1.x);
        float v0=(x0)*(x1);
        float v1=(v0)+(U2F(W(2)));
        float v2=nn_tanh(v1);
        y0.x=nn_canon(F2U(v2));
      }
      {
        float x0=U2F(w0.y);
        float x1=U2F(w1.y);
        float v0=(x0)*(x1);
        float v1=(v0)+(U2F(W(2)));
        float v2=nn_tanh(v1);
        y0.y=nn_canon(F2U(v2));
      }
      {
        float x0=U2F(w0.z);
        float x1=U2F(w1.z);
        float v0=(x0)*(x1);
        float v1=(v0)+(U2F(W(2)));
        float v2=nn_tanh(v1);
        y0.z=nn_canon(F2U(v2));
      }
      {
        float x0=U2F(w0.w);
        float x1=U2F(w1.w);
        float v0=(x0)*(x1);
        float v1=(v0)+(U2F(W(2)));
        float v2=nn_tanh(v1);
        y0.w=nn_canon(F2U(v2));
      }
      q0.d[v]=y0;
    } else {
      uint end=min(count-base,4u);
      for(uint lane=0u;lane<end;lane++){
        uint i=base+lane, row=i/cols, col=i-row*cols;
        float x0=U2F(b0.d[i]);
        float x1=U2F(b1.d[col]);
        float v0=(x0)*(x1);
        float v1=(v0)+(U2F(W(2)));
        float v2=nn_tanh(v1);
        o0.d[i]=nn_canon(F2U(v2));
      }
    }
    if(groups-v<=stride) break;
  }
}
