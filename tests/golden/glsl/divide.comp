#version 450
layout(local_size_x=256) in;
layout(std430,set=0,binding=0) readonly buffer B0{uint d[];} b0;
layout(std430,set=0,binding=1) readonly buffer B1{uint d[];} b1;
layout(std430,set=0,binding=2) writeonly buffer O0{uint d[];} o0;
layout(std430,set=0,binding=0) readonly buffer C0{uvec4 d[];} c0;
layout(std430,set=0,binding=1) readonly buffer C1{uvec4 d[];} c1;
layout(std430,set=0,binding=2) writeonly buffer Q0{uvec4 d[];} q0;
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
int MSB(uint a){return findMSB(a|1u);}
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
FN uint nn_soft_div(uint a,uint b){
  uint s=(a^b)&0x80000000u, aa=a&0x7fffffffu, ab=b&0x7fffffffu;
  int ea=INT(aa>>23), eb=INT(ab>>23); uint ma=aa&0x7fffffu, mb=ab&0x7fffffu;
  if(UINT(ea-1)>=254u||UINT(eb-1)>=254u){
    if(aa>0x7f800000u||ab>0x7f800000u) return QNAN;
    if(aa==ab&&(aa==0u||aa==0x7f800000u)) return QNAN;
    if(aa==0x7f800000u||ab==0u) return s|0x7f800000u;
    if(ab==0x7f800000u||aa==0u) return s;
    if(ea==0){int z=23-MSB(ma);ma=(ma<<UINT(z))&0x7fffffu;ea=1-z;}
    if(eb==0){int z=23-MSB(mb);mb=(mb<<UINT(z))&0x7fffffu;eb=1-z;}
  }
  float q0=DIVSEED(U2F(ma|0x3f800000u),U2F(mb|0x3f800000u));
  return s|nn_div_core(ma|0x800000u,mb|0x800000u,q0,ea-eb+127);
}
float nn_div(float a,float b){return U2F(nn_soft_div(F2U(a),F2U(b)));}
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
        float v0=nn_div(x0,x1);
        y0.x=nn_canon(F2U(v0));
      }
      {
        float x0=U2F(w0.y);
        float x1=U2F(w1.y);
        float v0=nn_div(x0,x1);
        y0.y=nn_canon(F2U(v0));
      }
      {
        float x0=U2F(w0.z);
        float x1=U2F(w1.z);
        float v0=nn_div(x0,x1);
        y0.z=nn_canon(F2U(v0));
      }
      {
        float x0=U2F(w0.w);
        float x1=U2F(w1.w);
        float v0=nn_div(x0,x1);
        y0.w=nn_canon(F2U(v0));
      }
      q0.d[v]=y0;
    } else {
      uint end=min(count-base,4u);
      for(uint lane=0u;lane<end;lane++){
        uint i=base+lane, row=i/cols, col=i-row*cols;
        float x0=U2F(b0.d[i]);
        float x1=U2F(b1.d[col]);
        float v0=nn_div(x0,x1);
        o0.d[i]=nn_canon(F2U(v0));
      }
    }
    if(groups-v<=stride) break;
  }
}
