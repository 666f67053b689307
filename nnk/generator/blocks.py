"""Kernel skeletons: the loops, the reduction tree and the matmul tile that every kernel of a form shares.

Each is a ``string.Template`` so that the shape of a kernel can be read here. All kernels stride over their work by
``gl_NumWorkGroups.x``: the number of workgroups is the dispatcher's choice and never changes a result.
"""

from __future__ import annotations

from string import Template

__all__ = ["ELEMENTWISE", "ELEMENTWISE_VEC4", "MATMUL", "REDUCE", "REDUCE_MAX", "REDUCE_SUM", "TREE"]

#: i runs over elements; the wrap guard keeps the last stride of a grid near 2**32 from starting over.
ELEMENTWISE = Template("""\
void main(){
  uint count=W(0), cols=W(1), stride=gl_NumWorkGroups.x*${local_size}u;
  for(uint i=gl_GlobalInvocationID.x;i<count;i+=stride){
    uint row=i/cols, col=i-row*cols;
${body}
    if(count-i<=stride) break;
  }
}
""")

#: v runs over groups of four elements. Groups that are whole, and whose columns do not wrap, load and store uvec4.
ELEMENTWISE_VEC4 = Template("""\
void main(){
  uint count=W(0), cols=W(1), stride=gl_NumWorkGroups.x*${local_size}u, groups=count/4u+min(count&3u,1u);
  for(uint v=gl_GlobalInvocationID.x;v<groups;v+=stride){
    uint base=v*4u;
    if(${fast_path}){
${vector_body}
    } else {
      uint end=min(count-base,4u);
      for(uint lane=0u;lane<end;lane++){
        uint i=base+lane, row=i/cols, col=i-row*cols;
${scalar_body}
      }
    }
    if(groups-v<=stride) break;
  }
}
""")

#: The tree of rule R7: p[j] += p[j+s] for s = 128 ... 1. Lanes beyond the width hold the identity, so the steps above
#: it change nothing and are skipped.
TREE = Template("""\
shared uint lanes[${lane_count}];
uint tree_${name}(uint value, uint width){
  uint t=gl_LocalInvocationID.x;
  lanes[t]=value;
  barrier();
  for(uint s=${half}u;s>0u;s>>=1){
    if(s<width){
      if(t<s) lanes[t]=${combine};
      barrier();
    }
  }
  uint result=lanes[0];
  barrier();
  return result;
}
""")

#: Sum of a row, R7: chunks of 16384, lanes, tree; the chunk results are a row again (levels 2 and 3).
REDUCE_SUM = Template("""\
    uint ${result};
    {
      uint chunks=(cols-1u)/${chunk}u+1u, level2=${identity}, level3=${identity}, total=${identity};
      for(uint chunk=0u;chunk<chunks;chunk++){
        uint first=chunk*${chunk}u, length=min(cols-first,${chunk}u), acc=${identity};
        for(uint j=t;j<length;j+=${lane_count}u){
          uint col=first+j;
${body}
          acc=F2U(U2F(acc)+${value});
        }
        total=tree_sum(acc,length);
        if(chunks>1u){
          if(t==chunk%${lane_count}u) level2=F2U(U2F(level2)+U2F(total));
          if(chunks>${chunk}u&&(chunk%${chunk}u==${chunk}u-1u||chunk==chunks-1u)){
            uint part=tree_sum(level2,chunk%${chunk}u+1u);
            if(t==(chunk/${chunk}u)%${lane_count}u) level3=F2U(U2F(level3)+U2F(part));
            level2=${identity};
          }
        }
      }
      if(chunks>${chunk}u) total=tree_sum(level3,(chunks-1u)/${chunk}u+1u);
      else if(chunks>1u) total=tree_sum(level2,chunks);
      ${result}=total;
    }
""")

#: Maximum of a row: any order gives the same bits (R6).
REDUCE_MAX = Template("""\
    uint ${result};
    {
      uint acc=${identity};
      for(uint col=t;col<cols;col+=${lane_count}u){
${body}
        acc=nn_max(acc,F2U(${value}));
        if(cols-col<=${lane_count}u) break;
      }
      ${result}=tree_max(acc,cols);
    }
""")

#: One workgroup a row. Values of the row are computed once, in program order; elements are computed again by each
#: pass that needs them, with the same bits.
REDUCE = Template("""\
void main(){
  uint count=W(0), cols=W(1), rows=W(2), vector_out=W(3), t=gl_LocalInvocationID.x;
  for(uint row=gl_WorkGroupID.x;row<rows;row+=gl_NumWorkGroups.x){
${passes}
    uint limit=vector_out!=0u?1u:cols;
    for(uint col=t;col<limit;col+=${lane_count}u){
      uint i=vector_out!=0u?row:row*cols+col;
${body}
      if(limit-col<=${lane_count}u) break;
    }
    if(rows-row<=gl_NumWorkGroups.x) break;
  }
}
""")

#: One workgroup a block of ${block} x ${block} results, 4 x 4 a thread, k ascending in steps of ${step} (R8). An
#: operand is base + row * row_stride + column * column_stride, whatever its view. Tiles are loaded along the axis
#: that is contiguous. Beyond the edge a is -0 and b is +0: their product -0 changes no sum (R5).
MATMUL = Template("""\
shared vec4 tile_a[${step}][${quads}];
shared vec4 tile_b[${step}][${quads}];
void main(){
  uint cols=W(1), rows=W(2), depth=W(3), batches=W(4), trans=W(5);
  uint height=rows/batches, t=gl_LocalInvocationID.x, tx=t%${quads}u, ty=t/${quads}u;
  uint blocks_x=(cols+${last})/${block}u, blocks_y=(height+${last})/${block}u, blocks=blocks_x*blocks_y*batches;
  for(uint block=gl_WorkGroupID.x;block<blocks;block+=gl_NumWorkGroups.x){
    uint n0=(block%blocks_x)*${block}u, m0=((block/blocks_x)%blocks_y)*${block}u, batch=block/(blocks_x*blocks_y);
${operands}
    bool a_along_k=a_column==1u, b_along_n=b_column==1u;
    vec4 acc0=vec4(${identity}), acc1=acc0, acc2=acc0, acc3=acc0;
    for(uint k0=0u;k0<depth;k0+=${step}u){
      for(uint j=0u;j<4u;j++){
        uint l=t+j*${local_size}u;
        uint m=a_along_k?l/${step}u:l%${block}u, k=a_along_k?l%${step}u:l/${block}u;
        uint value=${pad_a};
        if(m0+m<height&&k0+k<depth) value=${load_a};
        tile_a[k][m/4u][m%4u]=U2F(value);
        uint n=b_along_n?l%${block}u:l/${step}u;
        k=b_along_n?l/${block}u:l%${step}u;
        value=${pad_b};
        if(n0+n<cols&&k0+k<depth) value=${load_b};
        tile_b[k][n/4u][n%4u]=U2F(value);
      }
      barrier();
      for(uint k=0u;k<${step}u;k++){
        vec4 a=tile_a[k][ty], b=tile_b[k][tx];
        vec4 p0=vec4(a.x)*b, p1=vec4(a.y)*b, p2=vec4(a.z)*b, p3=vec4(a.w)*b;
        acc0=acc0+p0; acc1=acc1+p1; acc2=acc2+p2; acc3=acc3+p3;
      }
      barrier();
    }
    for(uint y=0u;y<4u;y++){
      uint local_row=m0+ty*4u+y;
      if(local_row>=height) break;
      vec4 acc=y<2u?(y==0u?acc0:acc1):(y==2u?acc2:acc3);
      for(uint x=0u;x<4u;x++){
        uint col=n0+tx*4u+x;
        if(col>=cols) break;
        uint row=batch*height+local_row, i=row*cols+col;
        float mm=acc[x];
${body}
      }
    }
    if(blocks-block<=gl_NumWorkGroups.x) break;
  }
}
""")
