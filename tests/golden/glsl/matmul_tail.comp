#version 450
layout(local_size_x=64) in;
layout(std430,set=0,binding=0) readonly buffer B0{uint d[];} b0;
layout(std430,set=0,binding=1) readonly buffer B1{uint d[];} b1;
layout(std430,set=0,binding=2) readonly buffer B2{uint d[];} b2;
layout(std430,set=0,binding=3) buffer O0{uint d[];} o0;
layout(std430,set=0,binding=0) readonly buffer C0{uvec4 d[];} c0;
layout(std430,set=0,binding=1) readonly buffer C1{uvec4 d[];} c1;
layout(push_constant) uniform P{uint words[8];};
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
shared vec4 tile_a[16][16];
shared vec4 tile_b[16][16];
void fetch_a(uint t,uint base,uint across0,uint limit,uint k0,uint depth,uint stride,uint k_stride){
  bool along_k=k_stride==1u;
  uint across=along_k?(t/4u)*4u:(t%16u)*4u, k=along_k?(t%4u)*4u:(t/16u)*4u;
  uvec4 v0=uvec4(0x80000000u), v1=v0, v2=v0, v3=v0;
  uint x=across0+across, y=k0+k, whole_x=x<limit?min(limit-x,4u):0u, whole_y=y<depth?min(depth-y,4u):0u;
  if(along_k){
    for(uint j=0u;j<whole_x;j++){
      uint at=base+(x+j)*stride+y*k_stride;
      uvec4 v=uvec4(0x80000000u);
      if(whole_y==4u&&(at&3u)==0u){
        v=c0.d[at/4u];
      } else {
        for(uint i=0u;i<whole_y;i++) v[i]=b0.d[at+i];
      }
      if(j==0u) v0=v; else if(j==1u) v1=v; else if(j==2u) v2=v; else v3=v;
    }
    tile_a[k][across/4u]=vec4(U2F(v0.x),U2F(v1.x),U2F(v2.x),U2F(v3.x));
    tile_a[k+1u][across/4u]=vec4(U2F(v0.y),U2F(v1.y),U2F(v2.y),U2F(v3.y));
    tile_a[k+2u][across/4u]=vec4(U2F(v0.z),U2F(v1.z),U2F(v2.z),U2F(v3.z));
    tile_a[k+3u][across/4u]=vec4(U2F(v0.w),U2F(v1.w),U2F(v2.w),U2F(v3.w));
  } else {
    for(uint i=0u;i<4u;i++){
      uvec4 v=uvec4(0x80000000u);
      if(i<whole_y){
        uint j=0u, at=base+(x+j)*stride+y*k_stride+i*k_stride;
        if(whole_x==4u&&stride==1u&&(at&3u)==0u){
          v=c0.d[at/4u];
        } else {
          for(j=0u;j<whole_x;j++) v[j]=b0.d[base+(x+j)*stride+y*k_stride+i*k_stride];
        }
      }
      tile_a[k+i][across/4u]=vec4(U2F(v.x),U2F(v.y),U2F(v.z),U2F(v.w));
    }
  }
}
void fetch_b(uint t,uint base,uint across0,uint limit,uint k0,uint depth,uint stride,uint k_stride){
  bool along_k=k_stride==1u;
  uint across=along_k?(t/4u)*4u:(t%16u)*4u, k=along_k?(t%4u)*4u:(t/16u)*4u;
  uvec4 v0=uvec4(0x00000000u), v1=v0, v2=v0, v3=v0;
  uint x=across0+across, y=k0+k, whole_x=x<limit?min(limit-x,4u):0u, whole_y=y<depth?min(depth-y,4u):0u;
  if(along_k){
    for(uint j=0u;j<whole_x;j++){
      uint at=base+(x+j)*stride+y*k_stride;
      uvec4 v=uvec4(0x00000000u);
      if(whole_y==4u&&(at&3u)==0u){
        v=c1.d[at/4u];
      } else {
        for(uint i=0u;i<whole_y;i++) v[i]=b1.d[at+i];
      }
      if(j==0u) v0=v; else if(j==1u) v1=v; else if(j==2u) v2=v; else v3=v;
    }
    tile_b[k][across/4u]=vec4(U2F(v0.x),U2F(v1.x),U2F(v2.x),U2F(v3.x));
    tile_b[k+1u][across/4u]=vec4(U2F(v0.y),U2F(v1.y),U2F(v2.y),U2F(v3.y));
    tile_b[k+2u][across/4u]=vec4(U2F(v0.z),U2F(v1.z),U2F(v2.z),U2F(v3.z));
    tile_b[k+3u][across/4u]=vec4(U2F(v0.w),U2F(v1.w),U2F(v2.w),U2F(v3.w));
  } else {
    for(uint i=0u;i<4u;i++){
      uvec4 v=uvec4(0x00000000u);
      if(i<whole_y){
        uint j=0u, at=base+(x+j)*stride+y*k_stride+i*k_stride;
        if(whole_x==4u&&stride==1u&&(at&3u)==0u){
          v=c1.d[at/4u];
        } else {
          for(j=0u;j<whole_x;j++) v[j]=b1.d[base+(x+j)*stride+y*k_stride+i*k_stride];
        }
      }
      tile_b[k+i][across/4u]=vec4(U2F(v.x),U2F(v.y),U2F(v.z),U2F(v.w));
    }
  }
}

vec4 saved(uint row,uint col,uint cols,bool is_inside){
  uint at=row*cols+col, n=is_inside&&col<cols?min(cols-col,4u):0u;
  uvec4 v=uvec4(0u);
  if(n>0u) v.x=o0.d[at];
  if(n>1u) v.y=o0.d[at+1u];
  if(n>2u) v.z=o0.d[at+2u];
  if(n>3u) v.w=o0.d[at+3u];
  return vec4(U2F(v.x),U2F(v.y),U2F(v.z),U2F(v.w));
}
void main(){
  uint cols=W(1), rows=W(2), depth=W(3), batches=W(4), trans=W(5), k_first=W(6), k_end=W(7);
  uint height=rows/batches, t=gl_LocalInvocationID.x, tx=t%8u, ty=t/8u;
  uint blocks_x=(cols+63u)/64u, blocks_y=(height+63u)/64u, blocks=blocks_x*blocks_y*batches;
  for(uint block=gl_WorkGroupID.x;block<blocks;block+=gl_NumWorkGroups.x){
    uint n0=(block%blocks_x)*64u, m0=((block/blocks_x)%blocks_y)*64u, batch=block/(blocks_x*blocks_y);
    uint a_base=batch*height*depth, a_row=(trans&1u)==0u?depth:1u, a_column=(trans&1u)==0u?1u:height;
    uint b_base=batch*depth*cols, b_row=(trans&2u)==0u?cols:1u, b_column=(trans&2u)==0u?1u:depth;
    uint steps=m0+ty*8u<height?16u:0u;
    float start=U2F(depth==0u?0u:0x80000000u);
    vec4 acc0=vec4(start), acc1=vec4(start), acc2=vec4(start), acc3=vec4(start), acc4=vec4(start), acc5=vec4(start), acc6=vec4(start), acc7=vec4(start), acc8=vec4(start), acc9=vec4(start), acc10=vec4(start), acc11=vec4(start), acc12=vec4(start), acc13=vec4(start), acc14=vec4(start), acc15=vec4(start);
    if(k_first>0u){
      uint row0=m0+ty*8u, at=batch*height+row0, col0=n0+tx*4u;
      acc0=saved(at+0u,col0+0u,cols,row0+0u<height);
      acc1=saved(at+0u,col0+32u,cols,row0+0u<height);
      acc2=saved(at+1u,col0+0u,cols,row0+1u<height);
      acc3=saved(at+1u,col0+32u,cols,row0+1u<height);
      acc4=saved(at+2u,col0+0u,cols,row0+2u<height);
      acc5=saved(at+2u,col0+32u,cols,row0+2u<height);
      acc6=saved(at+3u,col0+0u,cols,row0+3u<height);
      acc7=saved(at+3u,col0+32u,cols,row0+3u<height);
      acc8=saved(at+4u,col0+0u,cols,row0+4u<height);
      acc9=saved(at+4u,col0+32u,cols,row0+4u<height);
      acc10=saved(at+5u,col0+0u,cols,row0+5u<height);
      acc11=saved(at+5u,col0+32u,cols,row0+5u<height);
      acc12=saved(at+6u,col0+0u,cols,row0+6u<height);
      acc13=saved(at+6u,col0+32u,cols,row0+6u<height);
      acc14=saved(at+7u,col0+0u,cols,row0+7u<height);
      acc15=saved(at+7u,col0+32u,cols,row0+7u<height);
    }
    for(uint k0=k_first;k0<k_end;k0+=16u){
      fetch_a(t,a_base,m0,height,k0,k_end,a_row,a_column);
      fetch_b(t,b_base,n0,cols,k0,k_end,b_column,b_row);
      barrier();
      for(uint k=0u;k<steps;k++){
        vec4 a0=tile_a[k][ty*2u], a1=tile_a[k][ty*2u+1u], b0=tile_b[k][tx], b1=tile_b[k][8u+tx], p;
        p=vec4(a0.x)*b0; acc0=acc0+p;
        p=vec4(a0.x)*b1; acc1=acc1+p;
        p=vec4(a0.y)*b0; acc2=acc2+p;
        p=vec4(a0.y)*b1; acc3=acc3+p;
        p=vec4(a0.z)*b0; acc4=acc4+p;
        p=vec4(a0.z)*b1; acc5=acc5+p;
        p=vec4(a0.w)*b0; acc6=acc6+p;
        p=vec4(a0.w)*b1; acc7=acc7+p;
        p=vec4(a1.x)*b0; acc8=acc8+p;
        p=vec4(a1.x)*b1; acc9=acc9+p;
        p=vec4(a1.y)*b0; acc10=acc10+p;
        p=vec4(a1.y)*b1; acc11=acc11+p;
        p=vec4(a1.z)*b0; acc12=acc12+p;
        p=vec4(a1.z)*b1; acc13=acc13+p;
        p=vec4(a1.w)*b0; acc14=acc14+p;
        p=vec4(a1.w)*b1; acc15=acc15+p;
      }
      barrier();
    }
    for(uint quad=0u;quad<16u;quad++){
      uint local_row=m0+ty*8u+quad/2u, col0=n0+(quad%2u)*32u+tx*4u;
      vec4 acc=acc0;
      if(quad==1u) acc=acc1;
      if(quad==2u) acc=acc2;
      if(quad==3u) acc=acc3;
      if(quad==4u) acc=acc4;
      if(quad==5u) acc=acc5;
      if(quad==6u) acc=acc6;
      if(quad==7u) acc=acc7;
      if(quad==8u) acc=acc8;
      if(quad==9u) acc=acc9;
      if(quad==10u) acc=acc10;
      if(quad==11u) acc=acc11;
      if(quad==12u) acc=acc12;
      if(quad==13u) acc=acc13;
      if(quad==14u) acc=acc14;
      if(quad==15u) acc=acc15;
      uint end=local_row<height&&col0<cols?min(cols-col0,4u):0u, row=batch*height+local_row;
      for(uint x=0u;x<end;x++){
        uint col=col0+x, i=row*cols+col;
        float mm=acc[x];
        if(k_end<depth){
          o0.d[i]=nn_canon(F2U(mm));
        } else {
          float x2=U2F(b2.d[col]);
          float v0=(mm)+(x2);
          float v1=nn_gelu(v0);
          o0.d[i]=nn_canon(F2U(v1));
        }
      }
    }
    if(blocks-block<=gl_NumWorkGroups.x) break;
  }
}
