#version 450
layout(local_size_x=64) in;
layout(std430,set=0,binding=0) readonly buffer B0{uint d[];} b0;
layout(std430,set=0,binding=1) readonly buffer B1{uint d[];} b1;
layout(std430,set=0,binding=2) buffer O0{uint d[];} o0;
layout(std430,set=0,binding=0) readonly buffer C0{uvec4 d[];} c0;
layout(std430,set=0,binding=1) readonly buffer C1{uvec4 d[];} c1;
layout(push_constant) uniform P{uint words[10];};
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
FN uint nn_canon(uint u){return SEL((u&0x7fffffffu)>0x7f800000u,QNAN,u);}
FN uint nn_f32_to_f16(uint u){
  uint s=(u>>16)&0x8000u, a=u&0x7fffffffu, e=a>>23;
  uint n=a-0x38000000u; n=(n+0xfffu+((n>>13)&1u))>>13;
  uint m=(a&0x7fffffu)|0x800000u; uint sh=SEL(e>=102u,126u-e,24u+1u); sh=SEL(sh>25u,25u,sh);
  uint q=m>>sh, r=m&((1u<<sh)-1u), h=1u<<(sh-1u);
  q+=SEL(r>h||(r==h&&(q&1u)!=0u),1u,0u); q=SEL(e<101u,0u,q);
  uint o=SEL(a<0x38800000u,q,n);
  o=SEL(a>=0x47800000u,0x7c00u,o);
  return SEL(a>0x7f800000u,0x7e00u,o|s);
}
FN uint nn_f16_to_f32(uint h){
  uint s=(h&0x8000u)<<16, a=h&0x7fffu;
  uint n=(a<<13)+0x38000000u;
  uint z=a&0x3ffu; uint t=F2U(FLT(INT(z)));
  t=SEL(z==0u,0u,t-(24u<<23));
  uint o=SEL(a<0x400u,t,n);
  o=SEL(a>=0x7c00u,0x7f800000u,o);
  return SEL(a>0x7c00u,QNAN,o|s);
}
FN uint nn_f32_to_bf16(uint u){ uint o=(u+0x7fffu+((u>>16)&1u))>>16; return SEL((u&0x7fffffffu)>0x7f800000u,0x7fc0u,o);}
FN uint nn_bf16_to_f32(uint h){return nn_canon(h<<16);}
uint load0(uint a){
  uint f16=W(8)&1u, bf16=W(9)&1u;
  if((f16|bf16)==0u) return b0.d[a];
  uint h=(b0.d[a>>1]>>((a&1u)*16u))&0xffffu;
  return f16!=0u?nn_f16_to_f32(h):nn_bf16_to_f32(h);
}
uvec4 quad0(uint q){
  uint f16=W(8)&1u, bf16=W(9)&1u;
  if((f16|bf16)==0u) return c0.d[q];
  uint v=b0.d[q*2u], w=b0.d[q*2u+1u];
  uvec4 h=uvec4(v&0xffffu,v>>16,w&0xffffu,w>>16);
  if(f16!=0u) return uvec4(nn_f16_to_f32(h.x),nn_f16_to_f32(h.y),nn_f16_to_f32(h.z),nn_f16_to_f32(h.w));
  return uvec4(nn_bf16_to_f32(h.x),nn_bf16_to_f32(h.y),nn_bf16_to_f32(h.z),nn_bf16_to_f32(h.w));
}
uint load1(uint a){
  uint f16=W(8)&2u, bf16=W(9)&2u;
  if((f16|bf16)==0u) return b1.d[a];
  uint h=(b1.d[a>>1]>>((a&1u)*16u))&0xffffu;
  return f16!=0u?nn_f16_to_f32(h):nn_bf16_to_f32(h);
}
uvec4 quad1(uint q){
  uint f16=W(8)&2u, bf16=W(9)&2u;
  if((f16|bf16)==0u) return c1.d[q];
  uint v=b1.d[q*2u], w=b1.d[q*2u+1u];
  uvec4 h=uvec4(v&0xffffu,v>>16,w&0xffffu,w>>16);
  if(f16!=0u) return uvec4(nn_f16_to_f32(h.x),nn_f16_to_f32(h.y),nn_f16_to_f32(h.z),nn_f16_to_f32(h.w));
  return uvec4(nn_bf16_to_f32(h.x),nn_bf16_to_f32(h.y),nn_bf16_to_f32(h.z),nn_bf16_to_f32(h.w));
}
uint half0(uint u){ return (W(8)&0x10000u)!=0u?nn_f32_to_f16(u):nn_f32_to_bf16(u); }
void store0(uint a,uint u){
  if(((W(8)|W(9))&0x10000u)==0u){ o0.d[a]=nn_canon(u); return; }
  uint shift=(a&1u)*16u;
  atomicAnd(o0.d[a>>1],~(0xffffu<<shift));
  atomicOr(o0.d[a>>1],half0(u)<<shift);
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
        v=quad0(at/4u);
      } else {
        for(uint i=0u;i<whole_y;i++) v[i]=load0(at+i);
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
          v=quad0(at/4u);
        } else {
          for(j=0u;j<whole_x;j++) v[j]=load0(base+(x+j)*stride+y*k_stride+i*k_stride);
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
        v=quad1(at/4u);
      } else {
        for(uint i=0u;i<whole_y;i++) v[i]=load1(at+i);
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
          v=quad1(at/4u);
        } else {
          for(j=0u;j<whole_x;j++) v[j]=load1(base+(x+j)*stride+y*k_stride+i*k_stride);
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
      if((W(8)&3u)==3u){
      for(uint k=0u;k<steps;k++){
        vec4 a0=tile_a[k][ty*2u], a1=tile_a[k][ty*2u+1u], b0=tile_b[k][tx], b1=tile_b[k][8u+tx];
        acc0=fma(vec4(a0.x),b0,acc0);
        acc1=fma(vec4(a0.x),b1,acc1);
        acc2=fma(vec4(a0.y),b0,acc2);
        acc3=fma(vec4(a0.y),b1,acc3);
        acc4=fma(vec4(a0.z),b0,acc4);
        acc5=fma(vec4(a0.z),b1,acc5);
        acc6=fma(vec4(a0.w),b0,acc6);
        acc7=fma(vec4(a0.w),b1,acc7);
        acc8=fma(vec4(a1.x),b0,acc8);
        acc9=fma(vec4(a1.x),b1,acc9);
        acc10=fma(vec4(a1.y),b0,acc10);
        acc11=fma(vec4(a1.y),b1,acc11);
        acc12=fma(vec4(a1.z),b0,acc12);
        acc13=fma(vec4(a1.z),b1,acc13);
        acc14=fma(vec4(a1.w),b0,acc14);
        acc15=fma(vec4(a1.w),b1,acc15);
      }
      } else {
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
          store0(i,F2U(mm));
        } else {
          float v0=U2F(nn_f16_to_f32(nn_f32_to_f16(F2U(mm))));
          store0(i,F2U(v0));
        }
      }
    }
    if(blocks-block<=gl_NumWorkGroups.x) break;
  }
}
