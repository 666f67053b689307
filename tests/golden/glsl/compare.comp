#version 450
layout(local_size_x=256) in;
layout(std430,set=0,binding=0) readonly buffer B0{uint d[];} b0;
layout(std430,set=0,binding=1) readonly buffer B1{uint d[];} b1;
layout(std430,set=0,binding=2) writeonly buffer O0{uint d[];} o0;
layout(std430,set=0,binding=0) readonly buffer C0{uvec4 d[];} c0;
layout(std430,set=0,binding=1) readonly buffer C1{uvec4 d[];} c1;
layout(std430,set=0,binding=2) writeonly buffer Q0{uvec4 d[];} q0;
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
FN uint nn_zero(uint u){return SEL((u&0x7fffffffu)==0u,0u,u);}
FN uint nn_lt(uint a,uint b){uint n=nn_isnan(a)|nn_isnan(b);return SEL(n==0u&&nn_key(nn_zero(a))<nn_key(nn_zero(b)),0x3f800000u,0u);}
FN uint nn_le(uint a,uint b){uint n=nn_isnan(a)|nn_isnan(b);return SEL(n==0u&&nn_key(nn_zero(a))<=nn_key(nn_zero(b)),0x3f800000u,0u);}
FN uint nn_eq(uint a,uint b){uint n=nn_isnan(a)|nn_isnan(b);return SEL(n==0u&&nn_zero(a)==nn_zero(b),0x3f800000u,0u);}
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
        float v0=U2F(nn_lt(F2U(x0),F2U(x1)));
        float v1=U2F(nn_le(F2U(U2F(W(2))),F2U(x0)));
        float v2=U2F(F2U(v0)|F2U(v1));
        float v3=U2F(nn_eq(F2U(x0),F2U(x1)));
        float v4=U2F(F2U(v2)|F2U(v3));
        float v5=U2F(nn_eq(F2U(x0),F2U(U2F(W(3))))^0x3f800000u);
        float v6=U2F(F2U(v4)|F2U(v5));
        float v7=U2F(nn_max(F2U(x0),F2U(x1)));
        float v8=(x0)-(x1);
        float v9=U2F(SEL((F2U(v6)&0x7fffffffu)!=0u,F2U(v7),F2U(v8)));
        y0.x=nn_canon(F2U(v9));
      }
      {
        float x0=U2F(w0.y);
        float x1=U2F(w1.y);
        float v0=U2F(nn_lt(F2U(x0),F2U(x1)));
        float v1=U2F(nn_le(F2U(U2F(W(2))),F2U(x0)));
        float v2=U2F(F2U(v0)|F2U(v1));
        float v3=U2F(nn_eq(F2U(x0),F2U(x1)));
        float v4=U2F(F2U(v2)|F2U(v3));
        float v5=U2F(nn_eq(F2U(x0),F2U(U2F(W(3))))^0x3f800000u);
        float v6=U2F(F2U(v4)|F2U(v5));
        float v7=U2F(nn_max(F2U(x0),F2U(x1)));
        float v8=(x0)-(x1);
        float v9=U2F(SEL((F2U(v6)&0x7fffffffu)!=0u,F2U(v7),F2U(v8)));
        y0.y=nn_canon(F2U(v9));
      }
      {
        float x0=U2F(w0.z);
        float x1=U2F(w1.z);
        float v0=U2F(nn_lt(F2U(x0),F2U(x1)));
        float v1=U2F(nn_le(F2U(U2F(W(2))),F2U(x0)));
        float v2=U2F(F2U(v0)|F2U(v1));
        float v3=U2F(nn_eq(F2U(x0),F2U(x1)));
        float v4=U2F(F2U(v2)|F2U(v3));
        float v5=U2F(nn_eq(F2U(x0),F2U(U2F(W(3))))^0x3f800000u);
        float v6=U2F(F2U(v4)|F2U(v5));
        float v7=U2F(nn_max(F2U(x0),F2U(x1)));
        float v8=(x0)-(x1);
        float v9=U2F(SEL((F2U(v6)&0x7fffffffu)!=0u,F2U(v7),F2U(v8)));
        y0.z=nn_canon(F2U(v9));
      }
      {
        float x0=U2F(w0.w);
        float x1=U2F(w1.w);
        float v0=U2F(nn_lt(F2U(x0),F2U(x1)));
        float v1=U2F(nn_le(F2U(U2F(W(2))),F2U(x0)));
        float v2=U2F(F2U(v0)|F2U(v1));
        float v3=U2F(nn_eq(F2U(x0),F2U(x1)));
        float v4=U2F(F2U(v2)|F2U(v3));
        float v5=U2F(nn_eq(F2U(x0),F2U(U2F(W(3))))^0x3f800000u);
        float v6=U2F(F2U(v4)|F2U(v5));
        float v7=U2F(nn_max(F2U(x0),F2U(x1)));
        float v8=(x0)-(x1);
        float v9=U2F(SEL((F2U(v6)&0x7fffffffu)!=0u,F2U(v7),F2U(v8)));
        y0.w=nn_canon(F2U(v9));
      }
      q0.d[v]=y0;
    } else {
      uint end=min(count-base,4u);
      for(uint lane=0u;lane<end;lane++){
        uint i=base+lane, row=i/cols, col=i-row*cols;
        float x0=U2F(b0.d[i]);
        float x1=U2F(b1.d[col]);
        float v0=U2F(nn_lt(F2U(x0),F2U(x1)));
        float v1=U2F(nn_le(F2U(U2F(W(2))),F2U(x0)));
        float v2=U2F(F2U(v0)|F2U(v1));
        float v3=U2F(nn_eq(F2U(x0),F2U(x1)));
        float v4=U2F(F2U(v2)|F2U(v3));
        float v5=U2F(nn_eq(F2U(x0),F2U(U2F(W(3))))^0x3f800000u);
        float v6=U2F(F2U(v4)|F2U(v5));
        float v7=U2F(nn_max(F2U(x0),F2U(x1)));
        float v8=(x0)-(x1);
        float v9=U2F(SEL((F2U(v6)&0x7fffffffu)!=0u,F2U(v7),F2U(v8)));
        o0.d[i]=nn_canon(F2U(v9));
      }
    }
    if(groups-v<=stride) break;
  }
}
