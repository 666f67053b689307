"""Kernel skeletons: the loops, the reduction tree and the matmul tile that every kernel of a form shares.

Each is a ``string.Template`` so that the shape of a kernel can be read here. All kernels stride over their work by
``gl_NumWorkGroups.x``: the number of workgroups is the dispatcher's choice and never changes a result.
"""

from __future__ import annotations

from string import Template

__all__ = ["ELEMENTWISE", "ELEMENTWISE_VEC4", "FETCH", "LANES", "MATMUL", "REDUCE", "REDUCE_MAX", "REDUCE_SUM",
           "TREE"]

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

#: A row has ${row_threads} threads; thread t owns the logical lanes t, t + ${row_threads}, ... of rule R7, which live
#: in shared memory. The steps of the tree that stay inside a thread need no barrier. Lanes from ``width`` on would
#: hold the identity: steps and additions with them change nothing and are left out.
TREE = Template("""\
uint tree_${name}(uint level, uint line, uint t, uint width){
  for(uint s=${half}u;s>=${row_threads}u;s>>=1)
    for(uint j=t;j<s&&j+s<width;j+=${row_threads}u) lanes[level][line][j]=${combine_own};
  barrier();
  for(uint s=${half_row}u;s>0u;s>>=1){
    if(s<width){
      if(t<s&&t+s<width) lanes[level][line][t]=${combine_other};
      barrier();
    }
  }
  uint result=lanes[level][line][0];
  barrier();
  return result;
}
""")

#: Lanes of the rows of a workgroup: level 0 for the elements of a chunk, level 1 for the results of chunks.
LANES = Template("shared uint lanes[${levels}][${lines}][${lane_count}];\n")

#: Sum of a row, R7: chunks of 16384, lanes, tree; the results of chunks are a row again (level 1), and so are the
#: results of 16384 chunks: at most 16 values, one a thread.
REDUCE_SUM = Template("""\
    uint ${result};
    {
      uint chunks=(cols-1u)/${chunk}u+1u, top=${identity}, total=${identity};
      for(uint chunk=0u;chunk<chunks;chunk++){
        uint first=chunk*${chunk}u, length=min(cols-first,${chunk}u);
        for(uint lane=t;lane<min(length,${lane_count}u);lane+=${row_threads}u){
          uint acc=${identity};
          for(uint j=lane;j<length;j+=${lane_count}u){
            uint col=first+j;
${body}
            acc=F2U(U2F(acc)+${value});
          }
          lanes[0][line][lane]=acc;
        }
        total=tree_sum(0u,line,t,length);
        if(chunks>1u){
          uint lane=chunk%${lane_count}u, group=chunk%${chunk}u;
          if(t==lane%${row_threads}u)
            lanes[1][line][lane]=group<${lane_count}u?total:F2U(U2F(lanes[1][line][lane])+U2F(total));
          if(chunk==chunks-1u||group==${chunk}u-1u){
            total=tree_sum(1u,line,t,group+1u);
            if(chunks>${chunk}u&&t==chunk/${chunk}u) top=total;
          }
        }
      }
      if(chunks>${chunk}u){
        lanes[0][line][t]=top;
        total=tree_sum(0u,line,t,(chunks-1u)/${chunk}u+1u);
      }
      ${result}=total;
    }
""")

#: Maximum of a row: any order gives the same bits (R6).
REDUCE_MAX = Template("""\
    uint ${result};
    {
      uint acc=${identity};
      for(uint col=t;col<cols;col+=${row_threads}u){
${body}
        acc=nn_max(acc,F2U(${value}));
        if(cols-col<=${row_threads}u) break;
      }
      lanes[0][line][t]=acc;
      ${result}=tree_max(0u,line,t,min(cols,${row_threads}u));
    }
""")

#: A workgroup takes ${lines} rows at a time. Values of a row are computed once, in program order; elements are
#: computed again by each pass that needs them, with the same bits. Lines beyond the last row repeat it, so that all
#: threads meet at the barriers, and store nothing.
REDUCE = Template("""\
void main(){
  uint count=W(0), cols=W(1), rows=W(2), vector_out=W(3);
  uint t=gl_LocalInvocationID.x%${row_threads}u, line=gl_LocalInvocationID.x/${row_threads}u;
  uint groups=(rows-1u)/${lines}u+1u;
  for(uint group=gl_WorkGroupID.x;group<groups;group+=gl_NumWorkGroups.x){
    uint row=min(group*${lines}u+line,rows-1u);
${passes}
    uint limit=vector_out!=0u?1u:cols;
    if(group*${lines}u+line>=rows) limit=0u;
    for(uint col=t;col<limit;col+=${row_threads}u){
      uint i=row*cols+col, at=vector_out!=0u?row:i;
${body}
      if(limit-col<=${row_threads}u) break;
    }
    if(groups-group<=gl_NumWorkGroups.x) break;
  }
}
""")

#: One workgroup a block of ${block} x ${block} results, 8 x 8 a thread, k ascending in steps of ${step} (R8). An
#: operand is base + row * row_stride + column * column_stride, whatever its view. A thread fetches one 4 x 4 patch of
#: each operand a step, four at a time along the axis that is contiguous. Beyond the edge a is -0 and b is +0: their
#: product -0 changes no sum (R5). A sum over no k is +0. Threads whose rows are all beyond the edge skip the products.
MATMUL = Template("""\
shared vec4 tile_a[${step}][${quads}];
shared vec4 tile_b[${step}][${quads}];
${fetch}
void main(){
  uint cols=W(1), rows=W(2), depth=W(3), batches=W(4), trans=W(5);
  uint height=rows/batches, t=gl_LocalInvocationID.x, tx=t%8u, ty=t/8u;
  uint blocks_x=(cols+${last})/${block}u, blocks_y=(height+${last})/${block}u, blocks=blocks_x*blocks_y*batches;
  for(uint block=gl_WorkGroupID.x;block<blocks;block+=gl_NumWorkGroups.x){
    uint n0=(block%blocks_x)*${block}u, m0=((block/blocks_x)%blocks_y)*${block}u, batch=block/(blocks_x*blocks_y);
${operands}
    uint steps=m0+ty*8u<height?${step}u:0u;
    float start=U2F(depth==0u?0u:${identity});
    vec4 ${accumulators};
    for(uint k0=0u;k0<depth;k0+=${step}u){
      fetch_a(t,${fetch_a});
      fetch_b(t,${fetch_b});
      barrier();
      for(uint k=0u;k<steps;k++){
        vec4 a0=tile_a[k][ty*2u], a1=tile_a[k][ty*2u+1u], b0=tile_b[k][tx], b1=tile_b[k][8u+tx], p;
${products}
      }
      barrier();
    }
    for(uint quad=0u;quad<16u;quad++){
      uint local_row=m0+ty*8u+quad/2u, col0=n0+(quad%2u)*32u+tx*4u;
      vec4 acc=acc0;
${choose}
      uint end=local_row<height&&col0<cols?min(cols-col0,4u):0u, row=batch*height+local_row;
      for(uint x=0u;x<end;x++){
        uint col=col0+x, i=row*cols+col;
        float mm=acc[x];
${body}
      }
    }
    if(blocks-block<=gl_NumWorkGroups.x) break;
  }
}
""")

#: Fetches a 4 x 4 patch of one operand into its tile: ``across`` counts along m or n, k downwards. Whole quads are
#: read where the patch is inside and its addresses allow it.
FETCH = Template("""\
void fetch_${name}(uint t,uint base,uint across0,uint limit,uint k0,uint depth,uint stride,uint k_stride){
  bool along_k=k_stride==1u;
  uint across=along_k?(t/4u)*4u:(t%${quads}u)*4u, k=along_k?(t%4u)*4u:(t/${quads}u)*4u;
  uvec4 v0=uvec4(${pad}), v1=v0, v2=v0, v3=v0;
  uint x=across0+across, y=k0+k, whole_x=x<limit?min(limit-x,4u):0u, whole_y=y<depth?min(depth-y,4u):0u;
  if(along_k){
    for(uint j=0u;j<whole_x;j++){
      uint at=${address};
      uvec4 v=uvec4(${pad});
      if(whole_y==4u&&(at&3u)==0u){
        v=${quad_buffer}.d[at/4u];
      } else {
        for(uint i=0u;i<whole_y;i++) v[i]=${buffer}.d[at+i];
      }
      if(j==0u) v0=v; else if(j==1u) v1=v; else if(j==2u) v2=v; else v3=v;
    }
    tile_${name}[k][across/4u]=vec4(U2F(v0.x),U2F(v1.x),U2F(v2.x),U2F(v3.x));
    tile_${name}[k+1u][across/4u]=vec4(U2F(v0.y),U2F(v1.y),U2F(v2.y),U2F(v3.y));
    tile_${name}[k+2u][across/4u]=vec4(U2F(v0.z),U2F(v1.z),U2F(v2.z),U2F(v3.z));
    tile_${name}[k+3u][across/4u]=vec4(U2F(v0.w),U2F(v1.w),U2F(v2.w),U2F(v3.w));
  } else {
    for(uint i=0u;i<4u;i++){
      uvec4 v=uvec4(${pad});
      if(i<whole_y){
        uint j=0u, at=${address}+i*k_stride;
        if(whole_x==4u&&stride==1u&&(at&3u)==0u){
          v=${quad_buffer}.d[at/4u];
        } else {
          for(j=0u;j<whole_x;j++) v[j]=${buffer}.d[${address}+i*k_stride];
        }
      }
      tile_${name}[k+i][across/4u]=vec4(U2F(v.x),U2F(v.y),U2F(v.z),U2F(v.w));
    }
  }
}
""")
