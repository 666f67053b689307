#version 450
layout(local_size_x=256) in;
layout(std430,set=0,binding=0) readonly buffer B0{uint d[];} b0;
layout(std430,set=0,binding=1) readonly buffer B1{uint d[];} b1;
layout(std430,set=0,binding=2) writeonly buffer O0{uint d[];} o0;
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
int MSB(uint a){return findMSB(a|1u);}
FK mkFK(float f,int k){return FK(f,k);}
FLK mkFLK(float f,float l,int k){return FLK(f,l,k);}
FN uint nn_canon(uint u){return SEL((u&0x7fffffffu)>0x7f800000u,QNAN,u);}
FN int nn_key(uint u){int i=INT(u);return i^((i>>31)&0x7fffffff);}
FN uint nn_isnan(uint u){return SEL((u&0x7fffffffu)>0x7f800000u,1u,0u);}
FN uint nn_max(uint a,uint b){uint m=SEL(nn_key(a)>=nn_key(b),a,b);return SEL((nn_isnan(a)|nn_isnan(b))!=0u,QNAN,m);}
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
shared uint lanes[2][256u*8u];
uint shift;
#define LANE(level,line,lane) lanes[level][(lane)*(256u>>shift)+(line)]
uint tree_max(uint level, uint line, uint t, uint width){
  uint threads=1u<<shift;
  for(uint s=4u*threads;s>=threads;s>>=1)
    for(uint j=t;j<s&&j+s<width;j+=threads) LANE(level,line,j)=nn_max(LANE(level,line,j),LANE(level,line,j+s));
  barrier();
  for(uint s=threads/2u;s>0u;s>>=1){
    if(s<width){
      if(t<s&&t+s<width) LANE(level,line,t)=nn_max(LANE(level,line,t),LANE(level,line,t+s));
      barrier();
    }
  }
  uint result=LANE(level,line,0u);
  barrier();
  return result;
}
uint tree_sum(uint level, uint line, uint t, uint width){
  uint threads=1u<<shift;
  for(uint s=4u*threads;s>=threads;s>>=1)
    for(uint j=t;j<s&&j+s<width;j+=threads) LANE(level,line,j)=F2U(U2F(LANE(level,line,j))+U2F(LANE(level,line,j+s)));
  barrier();
  for(uint s=threads/2u;s>0u;s>>=1){
    if(s<width){
      if(t<s&&t+s<width) LANE(level,line,t)=F2U(U2F(LANE(level,line,t))+U2F(LANE(level,line,t+s)));
      barrier();
    }
  }
  uint result=LANE(level,line,0u);
  barrier();
  return result;
}
void main(){
  uint count=W(0), cols=W(1), rows=W(2), vector_out=W(3);
  if(count==0u&&vector_out!=1u) return;
  uint chunks_out=vector_out==2u?(rows-1u)/16384u+1u:1u;
  uint span=vector_out==2u?min(rows,16384u):rows;
  shift=0u;
  while((1u<<shift)<32u&&(8u<<shift)<span) shift++;
  uint threads=1u<<shift, lines=256u>>shift;
  uint t=gl_LocalInvocationID.x/lines, line=gl_LocalInvocationID.x%lines;
  uint items=cols*chunks_out, groups=items/lines+min(items%lines,1u);
  for(uint group=gl_WorkGroupID.x;group<groups;group+=gl_NumWorkGroups.x){
    uint item=min(group*lines+line,items-1u);
    uint col=item%cols, start=(item/cols)*16384u;
    uint extent=min(rows-start,span);
    float x1=U2F(b1.d[col]);
    uint s1;
    {
      uint acc=0xff800000u;
      for(uint j=t;j<extent;j+=threads){
        uint row=start+j;
        uint i=row*cols+col;
        float x0=U2F(b0.d[i]);
        float v0=(x0)*(x1);
        acc=nn_max(acc,F2U(v0));
        if(extent-j<=threads) break;
      }
      LANE(0,line,t)=acc;
      s1=tree_max(0u,line,t,min(span,threads));
    }
    float v1=U2F(s1);
    uint s4;
    {
      uint chunks=span==0u?0u:(span-1u)/16384u+1u, top=0x80000000u, total=span==0u?0u:0x80000000u;
      for(uint chunk=0u;chunk<chunks;chunk++){
        uint first=chunk*16384u, length=min(span-first,16384u), end=min(extent-first,length);
        for(uint lane=t;lane<min(length,256u);lane+=threads){
          uint acc=0x80000000u;
          for(uint j=lane;j<end;j+=256u){
            uint row=start+first+j;
            uint i=row*cols+col;
            float x0=U2F(b0.d[i]);
            float v0=(x0)*(x1);
            float v2=(v0)-(v1);
            float v3=nn_exp(v2);
            acc=F2U(U2F(acc)+v3);
          }
          LANE(0,line,lane)=acc;
        }
        total=tree_sum(0u,line,t,length);
        if(chunks>1u){
          uint lane=chunk%256u, group=chunk%16384u;
          if(t==lane%threads)
            LANE(1,line,lane)=group<256u?total:F2U(U2F(LANE(1,line,lane))+U2F(total));
          if(chunk==chunks-1u||group==16384u-1u){
            total=tree_sum(1u,line,t,group+1u);
            if(chunks>16384u&&t==chunk/16384u) top=total;
          }
        }
      }
      if(chunks>16384u){
        LANE(0,line,t)=top;
        total=tree_sum(0u,line,t,(chunks-1u)/16384u+1u);
      }
      s4=total;
    }
    float v4=U2F(s4);
    uint limit=vector_out!=0u?1u:rows;
    if(group*lines+line>=items) limit=0u;
    for(uint row=t;row<limit;row+=threads){
      uint i=row*cols+col, at=vector_out!=0u?item:i;
      float x0=U2F(b0.d[i]);
      float v0=(x0)*(x1);
      float v2=(v0)-(v1);
      float v3=nn_exp(v2);
      float v5=nn_div(v3,v4);
      o0.d[at]=nn_canon(F2U(v5));
      if(limit-row<=threads) break;
    }
    if(groups-group<=gl_NumWorkGroups.x) break;
  }
}
