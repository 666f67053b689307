#version 450
layout(local_size_x=256) in;
layout(std430,set=0,binding=0) readonly buffer B0{uint d[];} b0;
layout(std430,set=0,binding=1) writeonly buffer O0{uint d[];} o0;
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
shared uint lanes[2][256u*8u];
uint shift;
#define LANE(level,line,lane) lanes[level][(lane)*(256u>>shift)+(line)]
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
    uint s0;
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
            acc=F2U(U2F(acc)+x0);
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
      s0=total;
    }
    float v0=U2F(s0);
    uint limit=vector_out!=0u?1u:rows;
    if(group*lines+line>=items) limit=0u;
    for(uint row=t;row<limit;row+=threads){
      uint i=row*cols+col, at=vector_out!=0u?item:i;
      o0.d[at]=nn_canon(F2U(v0));
      if(limit-row<=threads) break;
    }
    if(groups-group<=gl_NumWorkGroups.x) break;
  }
}
