#version 450
layout(local_size_x=256) in;
layout(std430,set=0,binding=0) readonly buffer B0{uint d[];} b0;
layout(std430,set=0,binding=1) readonly buffer B1{uint d[];} b1;
layout(std430,set=0,binding=2) writeonly buffer O0{uint d[];} o0;
layout(push_constant) uniform P{uint words[6];};
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
uint MULHI(uint a,uint b){uint h,l;umulExtended(a,b,h,l);return h;}
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
FN int nn_rsq_res(uint mm,uint Z){
  uint zh=MULHI(Z,Z), zl=Z*Z;
  return INT(MULHI(zl,mm)+zh*mm);
}
FN uint nn_soft_rsqrt(uint u){
  if(u-1u>=0x7f7fffffu){
    if((u&0x7fffffffu)==0u) return (u&0x80000000u)|0x7f800000u;
    if(u==0x7f800000u) return 0u;
    return QNAN;
  }
  int e=INT(u>>23); uint m=u&0x7fffffu;
  if(e==0){int z=23-MSB(m);m=(m<<UINT(z))&0x7fffffu;e=1-z;}
  int odd=(e&1)^1;
  float fm=U2F(m|0x3f800000u); fm=SEL(odd!=0,fm+fm,fm);
  uint mm=(m|0x800000u)<<UINT(odd);
  float y=RSQSEED(fm);
  uint Y=UINT(INT(y*16777216.0f));
  int R=-nn_rsq_res(mm,Y);
  float dl=FLT(R)*y*0.0000152587890625f;
  float t=dl+12582912.0f; Y=Y+(F2U(t)-0x4b400000u);
  Y=SEL(nn_rsq_res(mm,(Y<<1)+1u)<0,Y+1u,Y);
  Y=SEL(nn_rsq_res(mm,(Y<<1)-1u)>=0,Y-1u,Y);
  int er=127-((e-127-odd)>>1);
  return (UINT(er-2)<<23)+Y;
}
float nn_div(float a,float b){return U2F(nn_soft_div(F2U(a),F2U(b)));}
float nn_rsqrt(float a){return U2F(nn_soft_rsqrt(F2U(a)));}
shared uint lanes[2][256u*8u];
uint shift;
#define LANE(level,line,lane) lanes[level][((lane)>>shift)*256u+((line)<<shift)+((lane)&((1u<<shift)-1u))]
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
  uint chunks_out=vector_out==2u?(cols-1u)/16384u+1u:1u;
  uint span=vector_out==2u?min(cols,16384u):cols;
  shift=0u;
  while((1u<<shift)<32u&&(8u<<shift)<span) shift++;
  uint threads=1u<<shift, lines=256u>>shift;
  uint t=gl_LocalInvocationID.x&(threads-1u), line=gl_LocalInvocationID.x>>shift;
  uint items=rows*chunks_out, groups=items/lines+min(items%lines,1u);
  for(uint group=gl_WorkGroupID.x;group<groups;group+=gl_NumWorkGroups.x){
    uint item=min(group*lines+line,items-1u);
    uint row=item/chunks_out, start=(item%chunks_out)*16384u;
    uint extent=min(cols-start,span);
    uint s1;
    {
      uint chunks=span==0u?0u:(span-1u)/16384u+1u, top=0x80000000u, total=span==0u?0u:0x80000000u;
      for(uint chunk=0u;chunk<chunks;chunk++){
        uint first=chunk*16384u, length=min(span-first,16384u), end=min(extent-first,length);
        for(uint lane=t;lane<min(length,256u);lane+=threads){
          uint acc=0x80000000u;
          for(uint j=lane;j<end;j+=256u){
            uint col=start+first+j;
            uint i=row*cols+col;
            float x0=U2F(b0.d[i]);
            float v0=(x0)*(x0);
            acc=F2U(U2F(acc)+v0);
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
      s1=total;
    }
    float v1=U2F(s1);
    float v2=nn_div(v1,U2F(W(4)));
    float v3=(v2)+(U2F(W(5)));
    float v4=nn_rsqrt(v3);
    uint limit=vector_out!=0u?1u:cols;
    if(group*lines+line>=items) limit=0u;
    for(uint col=t;col<limit;col+=threads){
      uint i=row*cols+col, at=vector_out!=0u?item:i;
      float x0=U2F(b0.d[i]);
      float x1=U2F(b1.d[col]);
      float v5=(x0)*(v4);
      float v6=(v5)*(x1);
      o0.d[at]=nn_canon(F2U(v6));
      if(limit-col<=threads) break;
    }
    if(groups-group<=gl_NumWorkGroups.x) break;
  }
}
