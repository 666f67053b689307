#version 450
layout(local_size_x=256) in;
layout(std430,set=0,binding=0) readonly buffer B0{uint d[];} b0;
layout(std430,set=0,binding=1) readonly buffer B1{uint d[];} b1;
layout(std430,set=0,binding=2) readonly buffer B2{uint d[];} b2;
layout(std430,set=0,binding=3) readonly buffer B3{uint d[];} b3;
layout(std430,set=0,binding=4) readonly buffer B4{uint d[];} b4;
layout(std430,set=0,binding=5) readonly buffer B5{uint d[];} b5;
layout(std430,set=0,binding=6) writeonly buffer O0{uint d[];} o0;
layout(std430,set=0,binding=1) readonly buffer C1{uvec4 d[];} c1;
layout(push_constant) uniform P{uint words[28];};
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
FN uint nn_zero(uint u){return SEL((u&0x7fffffffu)==0u,0u,u);}
FN uint nn_lt(uint a,uint b){uint n=nn_isnan(a)|nn_isnan(b);return SEL(n==0u&&nn_key(nn_zero(a))<nn_key(nn_zero(b)),0x3f800000u,0u);}
FN uint nn_eq(uint a,uint b){uint n=nn_isnan(a)|nn_isnan(b);return SEL(n==0u&&nn_zero(a)==nn_zero(b),0x3f800000u,0u);}
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
shared vec4 items[128*5];
shared uint part[256];
shared uint row_value[3][16];
shared vec4 queries[16*4];
#define KEY(k) items[(k)*32u+j/4u][j%4u]
uint stage_max(uint t){
  uint row=t%16u, lane=t/16u, at=lane*5u+row/4u, x=row%4u;
  uint a[8];
  for(uint n=0u;n<8u;n++) a[n]=F2U(items[at+n*80u][x]);
  a[0]=nn_max(a[0],a[4]);
  a[1]=nn_max(a[1],a[5]);
  a[2]=nn_max(a[2],a[6]);
  a[3]=nn_max(a[3],a[7]);
  a[0]=nn_max(a[0],a[2]);
  a[1]=nn_max(a[1],a[3]);
  a[0]=nn_max(a[0],a[1]);
  return a[0];
}
uint finish_max(uint t){
  uint a[16];
  for(uint n=0u;n<16u;n++) a[n]=part[n*16u+t];
  a[0]=nn_max(a[0],a[8]);
  a[1]=nn_max(a[1],a[9]);
  a[2]=nn_max(a[2],a[10]);
  a[3]=nn_max(a[3],a[11]);
  a[4]=nn_max(a[4],a[12]);
  a[5]=nn_max(a[5],a[13]);
  a[6]=nn_max(a[6],a[14]);
  a[7]=nn_max(a[7],a[15]);
  a[0]=nn_max(a[0],a[4]);
  a[1]=nn_max(a[1],a[5]);
  a[2]=nn_max(a[2],a[6]);
  a[3]=nn_max(a[3],a[7]);
  a[0]=nn_max(a[0],a[2]);
  a[1]=nn_max(a[1],a[3]);
  a[0]=nn_max(a[0],a[1]);
  return nn_max(a[0],0xff7fffffu);
}
uint stage_sum(uint t){
  uint row=t%16u, lane=t/16u, at=lane*5u+row/4u, x=row%4u;
  uint a[8];
  for(uint n=0u;n<8u;n++) a[n]=F2U(items[at+n*80u][x]);
  a[0]=F2U(U2F(a[0])+U2F(a[4]));
  a[1]=F2U(U2F(a[1])+U2F(a[5]));
  a[2]=F2U(U2F(a[2])+U2F(a[6]));
  a[3]=F2U(U2F(a[3])+U2F(a[7]));
  a[0]=F2U(U2F(a[0])+U2F(a[2]));
  a[1]=F2U(U2F(a[1])+U2F(a[3]));
  a[0]=F2U(U2F(a[0])+U2F(a[1]));
  return a[0];
}
uint finish_sum(uint t){
  uint a[16];
  for(uint n=0u;n<16u;n++) a[n]=part[n*16u+t];
  a[0]=F2U(U2F(a[0])+U2F(a[8]));
  a[1]=F2U(U2F(a[1])+U2F(a[9]));
  a[2]=F2U(U2F(a[2])+U2F(a[10]));
  a[3]=F2U(U2F(a[3])+U2F(a[11]));
  a[4]=F2U(U2F(a[4])+U2F(a[12]));
  a[5]=F2U(U2F(a[5])+U2F(a[13]));
  a[6]=F2U(U2F(a[6])+U2F(a[14]));
  a[7]=F2U(U2F(a[7])+U2F(a[15]));
  a[0]=F2U(U2F(a[0])+U2F(a[4]));
  a[1]=F2U(U2F(a[1])+U2F(a[5]));
  a[2]=F2U(U2F(a[2])+U2F(a[6]));
  a[3]=F2U(U2F(a[3])+U2F(a[7]));
  a[0]=F2U(U2F(a[0])+U2F(a[2]));
  a[1]=F2U(U2F(a[1])+U2F(a[3]));
  a[0]=F2U(U2F(a[0])+U2F(a[1]));
  return a[0];
}
void main(){
  uint cols=W(1), rows=W(2), out_cols=W(3), depth=W(5), batches=W(6), first_row=W(7), first_batch=W(8);
  uint height=rows/batches, t=gl_LocalInvocationID.x, j=t%128u, side=t/128u, nought=gl_WorkGroupID.y;
  uint tiles=(height-1u)/16u+1u, chunks=(out_cols-1u)/256u+1u, groups=tiles*batches*chunks;
  for(uint group=gl_WorkGroupID.x;group<groups;group+=gl_NumWorkGroups.x){
    uint chunk=group%chunks, m0=(group/chunks%tiles)*16u, batch=group/chunks/tiles, live=min(height-m0,16u);
    float s0=U2F(0xff800000u|nought), s1=U2F(0x00000000u|nought);
    uint query_base=(batch)*height*depth;
    uint key_base=(batch/W(9))*cols*depth;
    uint first4=W(12)+(batch*height)%W(14)*W(17)+((batch*height)/W(14))%W(13)*W(16)+(((batch*height)/W(14))/W(13))*W(15);
    uint first5=W(19)+(batch*height)%W(21)*W(24)+((batch*height)/W(21))%W(20)*W(23)+(((batch*height)/W(21))/W(20))*W(22);
    uint vector_base=(batch/W(10))*cols*out_cols;
    uint d0=chunk*256u, span=min(out_cols-d0,256u);
    uint across=span<=64u?64u:span<=128u?128u:256u, quad=t/across, quad_step=256u/across;
    uint d=min(d0+t%across,out_cols-1u);
    vec4 sum0=vec4(U2F(0x80000000u|nought)), sum1=sum0, sum2=sum0, sum3=sum0;
    uint top=first_row+m0, stop=min(cols,top+live);
    for(uint k0=0u;k0<stop;k0+=128u){
      uint width=min(cols-k0,128u);
      vec4 acc0=vec4(U2F(depth==0u?nought:0x80000000u)), acc1=acc0;
      for(uint k1=0u;k1<depth;k1+=16u){
        {
          uint y=t%16u, r=t/16u;
          queries[y*4u+r/4u][r%4u]=U2F(r<live&&k1+y<depth?b0.d[query_base+(m0+r)*depth+k1+y]:0x80000000u);
        }
        for(uint n=side;n<4u;n+=2u){
          uint y=k1+n*4u, whole=j<width&&y<depth?min(depth-y,4u):0u, at=key_base+(k0+j)*depth+y;
          uvec4 v=uvec4(0x00000000u);
          if(whole==4u&&(at&3u)==0u){
            v=c1.d[at/4u];
          } else {
            for(uint i=0u;i<whole;i++) v[i]=b1.d[at+i];
          }
          KEY(n*4u)=U2F(v.x);
          KEY(n*4u+1u)=U2F(v.y);
          KEY(n*4u+2u)=U2F(v.z);
          KEY(n*4u+3u)=U2F(v.w);
        }
        barrier();
        if(side*8u<live){
          for(uint k=0u;k<16u;k++){
            vec4 b=vec4(KEY(k)), p;
            p=queries[k*4u+side*2u]*b; acc0=acc0+p;
            p=queries[k*4u+side*2u+1u]*b; acc1=acc1+p;
          }
        }
        barrier();
      }
      float score[8];
      score[0]=acc0.x; score[1]=acc0.y; score[2]=acc0.z; score[3]=acc0.w; score[4]=acc1.x; score[5]=acc1.y; score[6]=acc1.z; score[7]=acc1.w;
      float v8, v9, v10, v11, v14, v15, v16, v17, kept7[8];
      for(uint e=0u;e<8u;e++){
        uint r=side*8u+e;
        if(r<live){
          uint batch_row=m0+r, row=batch*height+batch_row, col=min(k0+j,cols-1u), i=row*cols+col;
          float x3=U2F(b3.d[batch%W(11)]);
          float x4=U2F(b4.d[first4+batch_row*W(17)+col*W(18)]);
          float x5=U2F(b5.d[first5+batch_row*W(24)+col*W(25)]);
          float v0=(score[e])*(U2F(W(27)));
          float v1=(FLT(INT(col)))-(FLT(INT(first_row+batch_row)));
          float v2=(x3)*(v1);
          float v3=(v0)+(v2);
          float v4=U2F(nn_eq(F2U(x4),F2U(x5))^0x3f800000u);
          float v5=U2F(SEL((F2U(v4)&0x7fffffffu)!=0u,F2U(U2F(W(26))),F2U(v3)));
          float v6=U2F(nn_lt(F2U(FLT(INT(first_row+batch_row))),F2U(FLT(INT(col)))));
          float v7=U2F(SEL((F2U(v6)&0x7fffffffu)!=0u,F2U(U2F(W(26))),F2U(v5)));
          kept7[e]=v7;
          items[j*5u+r/4u][r%4u]=U2F(j<width&&k0+j<=first_row+batch_row?F2U(v7):0xff7fffffu);
        }
      }
      barrier();
      part[t]=stage_max(t);
      barrier();
      if(t<16u) v8=U2F(finish_max(t));
      if(t<16u){
        uint batch_row=min(m0+t,height-1u), row=batch*height+batch_row;
        v9=U2F(nn_max(F2U(s0),F2U(v8)));
        v10=(s0)-(v9);
        v11=nn_exp(v10);
        v14=(s1)*(v11);
        v17=(v9);
        row_value[1][t]=F2U(v9);
        row_value[2][t]=F2U(v11);
      }
      barrier();
      for(uint e=0u;e<8u;e++){
        uint r=side*8u+e;
        if(r<live){
          uint batch_row=m0+r, row=batch*height+batch_row, col=min(k0+j,cols-1u), i=row*cols+col;
          float v12=(kept7[e])-(U2F(row_value[1][r]));
          float v13=nn_exp(v12);
          items[j*5u+r/4u][r%4u]=U2F(j<width&&k0+j<=first_row+batch_row?F2U(v13):0x80000000u);
        }
      }
      barrier();
      part[t]=stage_sum(t);
      barrier();
      if(t<16u) v15=U2F(finish_sum(t));
      if(t<16u){
        uint batch_row=min(m0+t,height-1u), row=batch*height+batch_row;
        v16=(v14)+(v15);
      }
      {
        sum0=sum0*vec4(U2F((k0<=top+(quad)*4u+0u?row_value[2][(quad)*4u+0u]:0x3f800000u)),U2F((k0<=top+(quad)*4u+1u?row_value[2][(quad)*4u+1u]:0x3f800000u)),U2F((k0<=top+(quad)*4u+2u?row_value[2][(quad)*4u+2u]:0x3f800000u)),U2F((k0<=top+(quad)*4u+3u?row_value[2][(quad)*4u+3u]:0x3f800000u)));
        if(quad_step<4u) sum1=sum1*vec4(U2F((k0<=top+(quad+quad_step)*4u+0u?row_value[2][(quad+quad_step)*4u+0u]:0x3f800000u)),U2F((k0<=top+(quad+quad_step)*4u+1u?row_value[2][(quad+quad_step)*4u+1u]:0x3f800000u)),U2F((k0<=top+(quad+quad_step)*4u+2u?row_value[2][(quad+quad_step)*4u+2u]:0x3f800000u)),U2F((k0<=top+(quad+quad_step)*4u+3u?row_value[2][(quad+quad_step)*4u+3u]:0x3f800000u)));
        if(quad_step<2u) sum2=sum2*vec4(U2F((k0<=top+(2u)*4u+0u?row_value[2][(2u)*4u+0u]:0x3f800000u)),U2F((k0<=top+(2u)*4u+1u?row_value[2][(2u)*4u+1u]:0x3f800000u)),U2F((k0<=top+(2u)*4u+2u?row_value[2][(2u)*4u+2u]:0x3f800000u)),U2F((k0<=top+(2u)*4u+3u?row_value[2][(2u)*4u+3u]:0x3f800000u)));
        if(quad_step<2u) sum3=sum3*vec4(U2F((k0<=top+(3u)*4u+0u?row_value[2][(3u)*4u+0u]:0x3f800000u)),U2F((k0<=top+(3u)*4u+1u?row_value[2][(3u)*4u+1u]:0x3f800000u)),U2F((k0<=top+(3u)*4u+2u?row_value[2][(3u)*4u+2u]:0x3f800000u)),U2F((k0<=top+(3u)*4u+3u?row_value[2][(3u)*4u+3u]:0x3f800000u)));
        uint whole_items=top<k0?0u:min(width,top+1u-k0), items_end=min(width,top+live-k0);
        for(uint item=0u;item<whole_items;item++){
          vec4 v=vec4(U2F(b2.d[vector_base+(k0+item)*out_cols+d])), p;
          p=items[item*5u+quad]*v; sum0=sum0+p;
          if(quad_step<4u){ p=items[item*5u+quad+quad_step]*v; sum1=sum1+p; }
          if(quad_step<2u){
            p=items[item*5u+2u]*v; sum2=sum2+p;
            p=items[item*5u+3u]*v; sum3=sum3+p;
          }
        }
        for(uint item=whole_items;item<items_end;item++){
          vec4 v=vec4(U2F(b2.d[vector_base+(k0+item)*out_cols+d])), p;
          uvec4 rows4=uvec4(top,top+1u,top+2u,top+3u);
          uint col=k0+item;
          p=items[item*5u+quad]*v;
          sum0=mix(sum0,sum0+p,greaterThanEqual(rows4+quad*4u,uvec4(col)));
          if(quad_step<4u){
            p=items[item*5u+quad+quad_step]*v;
            sum1=mix(sum1,sum1+p,greaterThanEqual(rows4+(quad+quad_step)*4u,uvec4(col)));
          }
          if(quad_step<2u){
            p=items[item*5u+2u]*v;
            sum2=mix(sum2,sum2+p,greaterThanEqual(rows4+8u,uvec4(col)));
            p=items[item*5u+3u]*v;
            sum3=mix(sum3,sum3+p,greaterThanEqual(rows4+12u,uvec4(col)));
          }
        }
      }
      if(t<16u&&k0<=top+t){ float n0=v17; float n1=v16; s0=n0; s1=n1; }
      barrier();
      if(cols-k0<=128u) break;
    }
    if(t<16u){ row_value[0][t]=F2U(s1); }
    barrier();
    for(uint n=0u;n<16u/quad_step;n++){
      uint x=n%4u, r=(quad+n/4u*quad_step)*4u+x, col=d0+t%across;
      vec4 o=sum0;
      if(n/4u==1u) o=sum1;
      if(n/4u==2u) o=sum2;
      if(n/4u==3u) o=sum3;
      if(r<live&&t%across<span){
        uint batch_row=m0+r, row=batch*height+batch_row;
        float f0=nn_div(o[x],U2F(row_value[0][r]));
        o0.d[row*out_cols+col]=nn_canon(F2U(f0));
      }
    }
    barrier();
    if(groups-group<=gl_NumWorkGroups.x) break;
  }
}
