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
FN float nn_top12(float x){return U2F(F2U(x)&0xfffff000u);}
FN float nn_top8(float x){return U2F(F2U(x)&0xffff0000u);}
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
FN float nn_scale(float f,int k){ uint u=F2U(f), s=u&0x80000000u; int e=INT((u>>23)&255u)+k;
  if(UINT(e-1)<254u) return U2F(u+(UINT(k)<<23));
  return U2F(s|nn_round_pack(e,((u&0x7fffffu)|0x800000u)<<8)); }
FN uint nn_half_tiny(uint u){uint a=u&0x7fffffffu,q=a>>1; return (u&0x80000000u)|(q+((a&1u)&(q&1u)));}
FN float nn_half(uint u){return U2F(SEL((u&0x7fffffffu)<0x01000000u,nn_half_tiny(u),u-0x00800000u));}
FN float nn_gelu(float x){
  uint u=F2U(x), ax=u&0x7fffffffu; float a=U2F(SEL(ax>0x41680000u,0x41680000u,ax));
  float s=a+2.5f; float sa=a-(s-2.5f);
  float rr=nn_divn(1.0f,s); float rh=nn_top8(rr); float sh=nn_top12(s);
  float rl=((1.0f-rh*sh)-rh*(s-sh))*rr;
  float w=1.0f-5.0f*rh; float wl=5.0f*rl; float v=w-wl; float vl=(w-v)-wl;
  float p=C(0xb9333590u);
  p=p*v+C(0xb9aa3a47u); p=p*v+C(0x3a382ec6u); p=p*v+C(0x3b26830cu); p=p*v+C(0xbad3003eu); p=p*v+C(0xbc864affu);
  p=p*v+C(0x3c1759bdu); p=p*v+C(0x3e0727dau); p=p*v+C(0xbede0ce5u);
  float z=p*v; float ph=z+C(0x3f34e773u); float pl=((C(0x3f34e773u)-ph)+z)+(p*vl-(ph*rr)*(sa+sa));
  float ah=nn_top12(a); float al=a-ah;
  FLK e=nn_expe(-((0.5f*ah)*ah),-((0.5f*al)*(a+ah)));
  float fh=nn_top8(e.f); float fl=(e.f-fh)+e.l; float p1=nn_top8(ph); float p2=(ph-p1)+pl;
  float g=fh*rh; float T=g*p1; float Tl=g*p2+(fh*rl+fl*rr)*ph;
  float yn=nn_scale(-(a*T+a*Tl),e.k);
  int kc=SEL(e.k<-60,-60,e.k); float Ts=(T+Tl)*U2F(UINT(kc+127)<<23);
  float yp=x-x*Ts; yp=SEL(ax>=0x41000000u,x,yp);
  float y=SEL(u>=0x80000000u,yn,yp);
  y=SEL(ax<0x32800000u,nn_half(u),y);
  y=SEL(u>=0x80000000u&&ax>0x41680000u,U2F(0x80000000u),y);
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
        float v0=nn_gelu(x0);
        y0.x=nn_canon(F2U(v0));
      }
      {
        float x0=U2F(w0.y);
        float v0=nn_gelu(x0);
        y0.y=nn_canon(F2U(v0));
      }
      {
        float x0=U2F(w0.z);
        float v0=nn_gelu(x0);
        y0.z=nn_canon(F2U(v0));
      }
      {
        float x0=U2F(w0.w);
        float v0=nn_gelu(x0);
        y0.w=nn_canon(F2U(v0));
      }
      q0.d[v]=y0;
    } else {
      uint end=min(count-base,4u);
      for(uint lane=0u;lane<end;lane++){
        uint i=base+lane, row=i/cols, col=i-row*cols;
        float x0=U2F(b0.d[i]);
        float v0=nn_gelu(x0);
        o0.d[i]=nn_canon(F2U(v0));
      }
    }
    if(groups-v<=stride) break;
  }
}
