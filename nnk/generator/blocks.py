"""Kernel skeletons: the loops, the reduction tree and the matmul tile that every kernel of a form shares.

Each is a ``string.Template`` so that the shape of a kernel can be read here. All kernels stride over their work by
``gl_NumWorkGroups.x``: the number of workgroups is the dispatcher's choice and never changes a result.
"""

from __future__ import annotations

from string import Template

__all__ = ["COLUMN_LANES", "ELEMENTWISE", "ELEMENTWISE_VEC4", "FETCH", "GROUPED_MAX", "GROUPED_SUM", "LABEL_ROW",
           "MATMUL", "PRODUCT", "PRODUCTS", "REDUCE", "REDUCE_MAX", "REDUCE_SUM", "ROLLED_PRODUCTS", "ROW_LANES",
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

#: A line is a row, or a column of a column reduction. It has 1 to 32 threads, a power of two, so that short lines leave
#: none idle; thread t of T owns the logical lanes t, t + T, ... of rule R7, which live in shared memory. The steps of
#: the tree that stay inside a thread need no barrier. Lanes from ``width`` on would hold the identity: steps and
#: additions with them change nothing and are left out. ``width`` is the same for all lines.
TREE = Template("""\
uint tree_${name}(uint level, uint line, uint t, uint width){
  uint threads=1u<<shift;
  for(uint s=${half_own}u*threads;s>=threads;s>>=1)
    for(uint j=t;j<s&&j+s<width;j+=threads) LANE(level,line,j)=${combine_own};
  barrier();
  for(uint s=threads/2u;s>0u;s>>=1){
    if(s<width){
      if(t<s&&t+s<width) LANE(level,line,t)=${combine_other};
      barrier();
    }
  }
  uint result=LANE(level,line,0u);
  barrier();
  return result;
}
""")

#: Lanes of the lines of a workgroup: level 0 for the elements of a chunk, level 1 for the results of chunks. 2**shift
#: is the number of threads of a line. Threads of a row lie side by side, those of neighbouring columns too; the lanes
#: that they own with one number lie side by side as they do.
ROW_LANES = Template("""\
shared uint lanes[${levels}][${lane_count}u*${lines}u];
uint shift;
#define LANE(level,line,lane) lanes[level][((lane)>>shift)*${local_size}u+((line)<<shift)+((lane)&((1u<<shift)-1u))]
""")
COLUMN_LANES = Template("""\
shared uint lanes[${levels}][${lane_count}u*${lines}u];
uint shift;
#define LANE(level,line,lane) lanes[level][(lane)*(${local_size}u>>shift)+(line)]
""")

#: Sum of a line, R7: chunks of 16384, lanes, tree; the results of chunks are a line again (level 1), and so are the
#: results of 16384 chunks: at most 16 values, one a thread. No values sum to +0 (R5). The line has ``extent`` elements
#: from ``start`` on, none of the workgroup more than ``span``: lanes that are empty in this line alone hold the
#: identity.
REDUCE_SUM = Template("""\
    uint ${result};
    {
      uint chunks=span==0u?0u:(span-1u)/${chunk}u+1u, top=${identity}, total=span==0u?0u:${identity};
      for(uint chunk=0u;chunk<chunks;chunk++){
        uint first=chunk*${chunk}u, length=min(span-first,${chunk}u), end=min(extent-first,length);
        for(uint lane=t;lane<min(length,${lane_count}u);lane+=threads){
          uint acc=${identity};
          for(uint j=lane;j<end;j+=${lane_count}u){
            uint ${along}=start+first+j;
${body}
            acc=F2U(U2F(acc)+${value});
          }
          LANE(0,line,lane)=acc;
        }
        total=tree_sum(0u,line,t,length);
        if(chunks>1u){
          uint lane=chunk%${lane_count}u, group=chunk%${chunk}u;
          if(t==lane%threads)
            LANE(1,line,lane)=group<${lane_count}u?total:F2U(U2F(LANE(1,line,lane))+U2F(total));
          if(chunk==chunks-1u||group==${chunk}u-1u){
            total=tree_sum(1u,line,t,group+1u);
            if(chunks>${chunk}u&&t==chunk/${chunk}u) top=total;
          }
        }
      }
      if(chunks>${chunk}u){
        LANE(0,line,t)=top;
        total=tree_sum(0u,line,t,(chunks-1u)/${chunk}u+1u);
      }
      ${result}=total;
    }
""")

#: Maximum of a line: any order gives the same bits (R6).
REDUCE_MAX = Template("""\
    uint ${result};
    {
      uint acc=${identity};
      for(uint j=t;j<extent;j+=threads){
        uint ${along}=start+j;
${body}
        acc=nn_max(acc,F2U(${value}));
        if(extent-j<=threads) break;
      }
      LANE(0,line,t)=acc;
      ${result}=tree_max(0u,line,t,min(span,threads));
    }
""")

#: A workgroup takes several lines at a time: rows, or neighbouring columns, whose threads read neighbouring elements. A
#: line has threads for its lanes, up to eight a thread. With vector_out 2 an item is a chunk of a line, else a whole
#: line. Values of a line are computed once, in program order; elements are computed again by each pass that needs them,
#: with the same bits. Items beyond the last one repeat it, so that all threads meet at the barriers, and store nothing.
REDUCE = Template("""\
void main(){
  uint count=W(0), cols=W(1), rows=W(2), vector_out=W(3);
  if(count==0u&&vector_out!=1u) return;
  uint chunks_out=vector_out==2u?(${along_count}-1u)/${chunk}u+1u:1u;
  uint span=vector_out==2u?min(${along_count},${chunk}u):${along_count};
  shift=0u;
  while((1u<<shift)<${row_threads}u&&(${own_lanes}u<<shift)<span) shift++;
  uint threads=1u<<shift, lines=${local_size}u>>shift;
  uint t=gl_LocalInvocationID.x${t}, line=gl_LocalInvocationID.x${line};
  uint items=${across_count}*chunks_out, groups=items/lines+min(items%lines,1u);
  for(uint group=gl_WorkGroupID.x;group<groups;group+=gl_NumWorkGroups.x){
    uint item=min(group*lines+line,items-1u);
    uint ${across}=${item_line}, start=(${item_chunk})*${chunk}u;
    uint extent=min(${along_count}-start,span);
${passes}
    uint limit=vector_out!=0u?1u:${along_count};
    if(group*lines+line>=items) limit=0u;
    for(uint ${along}=t;${along}<limit;${along}+=threads){
      uint i=row*cols+col, at=vector_out!=0u?item:i;
${body}
      if(limit-${along}<=threads) break;
    }
    if(groups-group<=gl_NumWorkGroups.x) break;
  }
}
""")

#: The matmul segment's value at one element, for kernels that reduce it: k ascending (R8). A sum over no k is +0.
PRODUCT = Template("""\
float product(uint row,uint col){
  uint cols=W(1), rows=W(2), depth=W(4), batches=W(5), trans=W(6), height=rows/batches;
  uint batch=row/height, local_row=row-batch*height;
${operands}
  uint acc=depth==0u?0u:${identity};
  for(uint k=0u;k<depth;k++) acc=F2U(U2F(acc)+U2F(${a})*U2F(${b}));
  return U2F(acc);
}
""")

#: One workgroup a block of ${block} x ${block} results, 8 x 8 a thread, k ascending in steps of ${step} (R8). An
#: operand is base + row * row_stride + column * column_stride, whatever its view. A thread fetches one 4 x 4 patch of
#: each operand a step, four at a time along the axis that is contiguous. Beyond the edge a is -0 and b is +0: their
#: product -0 changes no sum (R5). A sum over no k is +0. Threads whose rows are all beyond the edge skip the products.
#: A launch adds the part [k_first, k_end) of k: it goes on from the sums in the output, and leaves its own there unless
#: it is the last one.
MATMUL = Template("""\
shared vec4 tile_a[${step}][${quads}];
shared vec4 tile_b[${step}][${quads}];
${fetch}
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
  uint blocks_x=(cols+${last})/${block}u, blocks_y=(height+${last})/${block}u, blocks=blocks_x*blocks_y*batches;
  for(uint block=gl_WorkGroupID.x;block<blocks;block+=gl_NumWorkGroups.x){
    uint n0=(block%blocks_x)*${block}u, m0=((block/blocks_x)%blocks_y)*${block}u, batch=block/(blocks_x*blocks_y);
${operands}
    uint steps=m0+ty*8u<height?${step}u:0u;
    float start=U2F(depth==0u?0u:${identity});
    ${accumulators}
    if(k_first>0u){
      uint row0=m0+ty*8u, at=batch*height+row0, col0=n0+tx*4u;
${restore}
    }
    for(uint k0=k_first;k0<k_end;k0+=${step}u){
      fetch_a(t,${fetch_a});
      fetch_b(t,${fetch_b});
      barrier();
${products}
      barrier();
    }
    for(uint quad=0u;quad<16u;quad++){
      uint local_row=m0+ty*8u+quad/2u, col0=n0+(quad%2u)*32u+tx*4u;
${choose}
      uint end=local_row<height&&col0<cols?min(cols-col0,4u):0u, row=batch*height+local_row;
      for(uint x=0u;x<end;x++){
        uint col=col0+x, i=row*cols+col;
        float mm=acc[x];
        if(k_end<depth){
          ${save}
        } else {
${body}
        }
      }
    }
    if(blocks-block<=gl_NumWorkGroups.x) break;
  }
}
""")

#: The products of a step of k, added to the sums.
PRODUCTS = Template("""\
for(uint k=0u;k<steps;k++){
  vec4 a0=tile_a[k][ty*2u], a1=tile_a[k][ty*2u+1u], b0=tile_b[k][tx], b1=tile_b[k][8u+tx]${product};
${sums}
}""")

#: The same in a loop over the quads, for kernels whose every operation is a call.
ROLLED_PRODUCTS = """\
for(uint k=0u;k<steps;k++){
  for(uint quad=0u;quad<16u;quad++){
    float a=tile_a[k][ty*2u+quad/8u][(quad/2u)%4u];
    vec4 b=tile_b[k][(quad%2u)*8u+tx];
    for(uint x=0u;x<4u;x++) sums[quad][x]=sums[quad][x]+a*b[x];
  }
}"""

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
        v=${quad}at/4u${end};
      } else {
        for(uint i=0u;i<whole_y;i++) v[i]=${load}at+i${end};
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
          v=${quad}at/4u${end};
        } else {
          for(j=0u;j<whole_x;j++) v[j]=${load}${address}+i*k_stride${end};
        }
      }
      tile_${name}[k+i][across/4u]=vec4(U2F(v.x),U2F(v.y),U2F(v.z),U2F(v.w));
    }
  }
}
""")

#: Sum of the n values of one level of a group, R7, by one thread: the lanes in bit-reversed order, so that a lane is
#: added to the tree as soon as it is known. part[d] waits for its neighbour in the step that joins 2**d lanes; the
#: lanes from n on would hold the identity. The value of level 0 is an element, that of the others a chunk of the level
#: below; more than ${chunk} values are never asked for.
GROUPED_SUM = Template("""\
uint ${name}(uint base,uint step,uint first,uint n,uint count){
  uint part[9], width=min(n,${lane_count}u), bits=0u;
  while((1u<<bits)<width) bits++;
  for(uint index=0u;index<(1u<<bits);index++){
    uint lane=(bitfieldReverse(index)>>1u)>>(31u-bits), acc=${identity}, depth=0u;
    for(uint j=lane;j<n;j+=${lane_count}u) acc=F2U(U2F(acc)+U2F(${value}));
    for(uint rest=index;(rest&1u)!=0u;rest>>=1){ acc=F2U(U2F(part[depth])+U2F(acc)); depth++; }
    part[depth]=acc;
  }
  return part[bits];
}
""")

#: Maximum of a group by one thread (R6).
GROUPED_MAX = Template("""\
uint ${name}(uint base,uint step,uint count){
  uint acc=${identity};
  for(uint j=0u;j<count;j++) acc=nn_max(acc,${value});
  return acc;
}
""")

#: The row of a table that a float label names: truncated, and always a row of the table, whatever the label is.
LABEL_ROW = """\
uint label_row(uint label,uint rows){
  return min(label<0x4f000000u?uint(INT(U2F(label))):0u,rows-1u);
}
"""
