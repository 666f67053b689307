// The functions of two operands: a part of nnk_math.h, which includes it at its end.
// ---------- pow: exp(y*log|x|), the logarithm in two floats with about 2^-35 relative error
// log(m*2^k) = k log 2 + log c + 2 atanh(s), s = (m-c)/(m+c), c one of five constants near m, 1 among them
FN HL nn_logh(uint ix,int k0){ // ix = bits of positive normal
  ix-=0x3f3504f3u; float kf=FLT((INT(ix)>>23)+k0); float m=U2F((ix&0x7fffffu)+0x3f3504f3u);
  float c=SEL(m<C(0x3f4ff2e5u),C(0x3f420000u),SEL(m<C(0x3f6ed917u),C(0x3f5f0000u),SEL(m<C(0x3f8930beu),C(0x3f800000u),SEL(m<C(0x3f9d94afu),C(0x3f930000u),C(0x3fa90000u)))));
  float ch=SEL(m<C(0x3f4ff2e5u),C(0xbe8dfc00u),SEL(m<C(0x3f6ed917u),C(0xbe0d5000u),SEL(m<C(0x3f8930beu),C(0x00000000u),SEL(m<C(0x3f9d94afu),C(0x3e0db800u),C(0x3e8e4400u)))));
  float cl=SEL(m<C(0x3f4ff2e5u),C(0xb6cb1ad3u),SEL(m<C(0x3f6ed917u),C(0xb6adf890u),SEL(m<C(0x3f8930beu),C(0x00000000u),SEL(m<C(0x3f9d94afu),C(0x36ab54beu),C(0x36c60b4du)))));
  float n=m-c; float d=m+c; float dl=m-(d-c); float dh=nn_top12(d); dl=(d-dh)+dl;
  float r=nn_recip(d*0.70703125f)*0.70703125f;
  float q=n*r; float qh=nn_top12(q); float ql=q-qh;
  float e=((((n-qh*dh)-qh*dl)-ql*dh)-ql*dl)*r; float w=q+e; float z=w*w;    // s = q + e
  float a=kf*C(0x3f317200u)+ch; float t=a+(q+q);                // k log 2 + log c is exact here
  float lo=(w*z)*(z*C(0x3ecd0996u)+C(0x3f2aaaa8u))+((e+e)+(cl+kf*C(0x35bfbe8eu)));
  return mkHL(t,((a-t)+(q+q))+lo);
}
FN float nn_pow(float x,float y){
  uint u=F2U(x), ax=u&0x7fffffffu, uy=F2U(y), ay=uy&0x7fffffffu;
  bool den=ax<0x00800000u; uint dn=F2U(FLT(INT(ax)));
  uint ix=SEL(den,dn,ax); ix=SEL(ax>=0x7f800000u||ax==0u,0x3f800000u,ix);
  HL r=nn_logh(ix,SEL(den,-149,0));
  float lh=r.h+r.l; float ll=(r.h-lh)+r.l;
  float yc=U2F(SEL(ay>0x6f000000u,(uy&0x80000000u)|0x6f000000u,uy));    // |y| <= 2^95
  float a1=nn_top12(lh); float a2=lh-a1; float b1=nn_top12(yc); float b2=yc-b1;
  float ph=lh*yc; float pl=((a1*b1-ph)+a1*b2+a2*b1)+a2*b2;
  pl=pl+ll*yc;
  bool big=ph>130.0f, sml=ph<-110.0f;
  float xh=SEL(big,130.0f,SEL(sml,-110.0f,ph)); float xl=SEL(big||sml,0.0f,pl);
  FK v=nn_expc(xh,xl); uint o=F2U(nn_scale(v.f,v.k));
  uint ey=SEL(ay<0x3f800000u,127u,SEL(ay>=0x4b800000u,151u,ay>>23));
  uint m=((uy&0x7fffffu)|0x800000u)<<(ey-126u);                 // bit 24: the parity of y; below it: its fraction
  uint frac=SEL(ay<0x3f800000u,1u,m&0xffffffu); uint odd=SEL(frac==0u,(m>>24)&1u,0u);
  o=SEL((frac&(0u-(u>>31)))!=0u,QNAN,o);
  uint lt=SEL(uy>=0x80000000u,0x7f800000u,0u);                  // 0**y; inf**y is the other of 0 and infinity
  o=SEL(ax==0u,lt,o);
  o=SEL(ax==0x7f800000u,lt^0x7f800000u,o);
  o=SEL(ay==0x7f800000u,SEL(ax==0x3f800000u,ax,SEL(ax<0x3f800000u,lt,lt^0x7f800000u)),o);
  o|=u&(odd<<31);
  o=SEL(ax>0x7f800000u||ay>0x7f800000u,QNAN,o);
  o=SEL(ay==0u||u==0x3f800000u,0x3f800000u,o);
  return U2F(o);
}
// ---------- atan2: at(t) with t = the smaller over the larger magnitude; t > 1/2: pi/4 + at((t-1)/(t+1))
FN float nn_atan2(float y,float x){
  uint ux=F2U(x), uy=F2U(y), ax=ux&0x7fffffffu, ay=uy&0x7fffffffu;
  bool swap=ay>ax; uint hi=SEL(swap,ay,ax), lo=SEL(swap,ax,ay);
  lo=SEL(hi==0x7f800000u,SEL(lo==hi,lo,0u),lo);                // a finite number beside an infinity: t = 0
  uint dh=F2U(FLT(INT(hi))), dl=F2U(FLT(INT(lo)));
  uint bh=SEL(hi<0x00800000u,dh,hi), bl=SEL(lo<0x00800000u,dl,lo);
  int e=INT(bl>>23)-INT(bh>>23)-SEL(lo<0x00800000u,149,0)+SEL(hi<0x00800000u,149,0);
  float b=U2F((bh&0x7fffffu)|0x3f800000u); float a=U2F((bl&0x7fffffu)|0x3f800000u);  // t = a/b*2^e
  e=SEL(lo==0u,-60,e);
  uint up=SEL(e==-1,SEL(a>b,1u,0u),0u); bool big=SEL(e==0,1u,up)!=0u;             // t > 1/2
  float as=SEL(e==-1,0.5f*a,a);
  float n=SEL(big,as-b,a); float d=SEL(big,as+b,b); float df=SEL(big,(b-d)+as,0.0f); e=SEL(big,0,e);
  float g=SEL(d>=2.0f,0.5f,1.0f); float r=nn_recip(d*g)*g;
  float h=nn_top12(n*r); float d1=nn_top12(d); float l=((n-h*d1)-h*((d-d1)+df))*r;
  float w=U2F(UINT(SEL(e<-60,-60,e)+127)<<23); float q=h+l; float t=q*w; float z=t*t;
  float p=C(0xbd115502u);
  p=p*z+C(0x3d8e3ef0u); p=p*z+C(0xbdb8d727u); p=p*z+C(0x3de3a0ecu); p=p*z+C(0xbe124bd6u); p=p*z+C(0x3e4cccf5u); p=p*z+C(0xbeaaaaabu);
  l=l+q*(z*p);                                                 // at(t) = (h+l)*2^e
  int j=SEL(big,1,0); j=SEL(swap,2-j,j); j=SEL(ux>=0x80000000u,4-j,j);              // the angle: j pi/4 +- at(t)
  uint sg=(ux&0x80000000u)^SEL(swap,0x80000000u,0u);
  float jf=FLT(j); float kh=jf*C(0x3f490fd8u); float v=U2F(F2U(h*w)^sg); float s=kh+v; float er=(kh-s)+v;
  uint far=F2U(s+(er+(jf*C(0x3428885au)+U2F(F2U(l*w)^sg))));
  uint near=F2U(nn_scale(h+l,SEL(e<-200,-200,e)));
  uint o=SEL(j==0,near,far); o=SEL(lo==0u,F2U(jf*C(0x3f490fdbu)),o);
  o=o|(uy&0x80000000u);
  return U2F(SEL(ax>0x7f800000u||ay>0x7f800000u,QNAN,o));
}
// ---------- fmod, exact: the remainder of a long division in base 2^31, with a multiplication by 2^55/m for each digit
FN uint nn_mod_step(uint r,uint m,uint inv,uint k){ // r*2^k mod m: r<m, m in [2^23,2^24), k<=31, inv in (2^55/m-2,2^55/m]
  uint q=MULHI(r<<8,inv)>>(31u-k); r=(r<<k)-q*m;               // exact modulo 2^32: r*2^k - q*m < 4m
  uint t=r-(m+m); r=SEL(r>=m+m,t,r);
  t=r-m; return SEL(r>=m,t,r);
}
FN uint nn_fmod(uint a,uint b){
  uint aa=a&0x7fffffffu, ab=b&0x7fffffffu;
  uint da=F2U(FLT(INT(aa))), db=F2U(FLT(INT(ab)));
  uint ba=SEL(aa<0x00800000u,da,aa), bb=SEL(ab<0x00800000u,db,ab);
  int eb=INT(bb>>23)-SEL(ab<0x00800000u,149,0); int d=INT(ba>>23)-SEL(aa<0x00800000u,149,0)-eb;
  uint r=(ba&0x7fffffu)|0x800000u, m=(bb&0x7fffffu)|0x800000u;
  // 2^55/m from a quotient that is off by a few units, and one Newton step on integers
  float s=DIVSEED(1.0f,U2F((m&0x7fffffu)|0x3f800000u)); uint inv=(UINT(INT(s*8388608.0f))-8u)<<9;
  uint eh=0x00800000u-MULHI(inv,m), el=inv*m; eh-=SEL(el!=0u,1u,0u); el=0u-el;    // 2^55 - inv*m < 2^38
  inv+=MULHI((eh<<24)|(el>>8),inv)>>15;
  uint t=r-m; r=SEL(r>=m,t,r);
  uint k=UINT(SEL(d<0,0,SEL(d>31,31,d))); r=nn_mod_step(r,m,inv,k);
  d-=31; k=UINT(SEL(d<0,0,SEL(d>31,31,d))); r=nn_mod_step(r,m,inv,k);
  d-=31; k=UINT(SEL(d<0,0,SEL(d>31,31,d))); r=nn_mod_step(r,m,inv,k);
  d-=31; k=UINT(SEL(d<0,0,SEL(d>31,31,d))); r=nn_mod_step(r,m,inv,k);
  d-=31; k=UINT(SEL(d<0,0,SEL(d>31,31,d))); r=nn_mod_step(r,m,inv,k);
  d-=31; k=UINT(SEL(d<0,0,SEL(d>31,31,d))); r=nn_mod_step(r,m,inv,k);
  d-=31; k=UINT(SEL(d<0,0,SEL(d>31,31,d))); r=nn_mod_step(r,m,inv,k);
  d-=31; k=UINT(SEL(d<0,0,SEL(d>31,31,d))); r=nn_mod_step(r,m,inv,k);
  d-=31; k=UINT(SEL(d<0,0,SEL(d>31,31,d))); r=nn_mod_step(r,m,inv,k);
  uint o=F2U(FLT(INT(r))); o=SEL(r==0u,0u,F2U(nn_scale(U2F(SEL(r==0u,0x3f800000u,o)),eb-150)));
  o=o|(a&0x80000000u);
  o=SEL(aa<ab,a,o);
  return SEL(aa>=0x7f800000u||ab>0x7f800000u||ab==0u,QNAN,o);
}
// ---------- the sum of two floats on bits, where it is rounded: guarded on a device that may flush
#if defined(NNK_C) && !defined(NNK_INTSCALE)
FN uint nn_any_add(uint a,uint b){return F2U(U2F(a)+U2F(b));}
#else
FN uint nn_any_add(uint a,uint b){return nn_g_add(a,b);}
#endif
FN uint nn_remainder(uint a,uint b){   // fmod, moved by b where the signs differ: the sign of b
  uint r=nn_fmod(a,b); uint y=nn_any_add(r,b);
  y=SEL(((r^b)&0x80000000u)!=0u,y,r);
  return SEL((r&0x7fffffffu)==0u,b&0x80000000u,y);
}
