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
FN uint nn_canon(uint u){return SEL((u&0x7fffffffu)>0x7f800000u,QNAN,u);}
FN int nn_key(uint u){int i=INT(u);return i^((i>>31)&0x7fffffff);}
FN uint nn_isnan(uint u){return SEL((u&0x7fffffffu)>0x7f800000u,1u,0u);}
FN uint nn_max(uint a,uint b){uint m=SEL(nn_key(a)>=nn_key(b),a,b);return SEL((nn_isnan(a)|nn_isnan(b))!=0u,QNAN,m);}
shared uint lanes[1][256u*8u];
uint shift;
#define LANE(level,line,lane) lanes[level][((lane)>>shift)*256u+((line)<<shift)+((lane)&((1u<<shift)-1u))]
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
      uint acc=0xff800000u;
      for(uint j=t;j<extent;j+=threads){
        uint col=start+j;
        uint i=row*cols+col;
        float x0=U2F(b0.d[i]);
        float x1=U2F(b1.d[col]);
        float v0=(x0)*(x1);
        acc=nn_max(acc,F2U(v0));
        if(extent-j<=threads) break;
      }
      LANE(0,line,t)=acc;
      s1=tree_max(0u,line,t,min(span,threads));
    }
    float v1=U2F(s1);
    uint limit=vector_out!=0u?1u:cols;
    if(group*lines+line>=items) limit=0u;
    for(uint col=t;col<limit;col+=threads){
      uint i=row*cols+col, at=vector_out!=0u?item:i;
      o0.d[at]=nn_canon(F2U(v1));
      if(limit-col<=threads) break;
    }
    if(groups-group<=gl_NumWorkGroups.x) break;
  }
}
