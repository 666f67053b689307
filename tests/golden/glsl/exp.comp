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
FN float nn_clampf(float x,float lo,float hi){x=SEL(x<lo,lo,x);return SEL(x>hi,hi,x);}
FN float nn_exp(float x){
  uint ax=F2U(x)&0x7fffffffu;
  float xc=SEL(ax>0x7f800000u,0.0f,x); xc=nn_clampf(xc,-104.0f,89.0f);
  FK v=nn_expc(xc,0.0f); float y=nn_scale(v.f,v.k);
  return SEL(ax>0x7f800000u,U2F(QNAN),y);
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
        float v0=nn_exp(x0);
        y0.x=nn_canon(F2U(v0));
      }
      {
        float x0=U2F(w0.y);
        float v0=nn_exp(x0);
        y0.y=nn_canon(F2U(v0));
      }
      {
        float x0=U2F(w0.z);
        float v0=nn_exp(x0);
        y0.z=nn_canon(F2U(v0));
      }
      {
        float x0=U2F(w0.w);
        float v0=nn_exp(x0);
        y0.w=nn_canon(F2U(v0));
      }
      q0.d[v]=y0;
    } else {
      uint end=min(count-base,4u);
      for(uint lane=0u;lane<end;lane++){
        uint i=base+lane, row=i/cols, col=i-row*cols;
        float x0=U2F(b0.d[i]);
        float v0=nn_exp(x0);
        o0.d[i]=nn_canon(F2U(v0));
      }
    }
    if(groups-v<=stride) break;
  }
}
