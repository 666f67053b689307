"""Skeletons of the fold kernels: see :mod:`nnk.generator.fold`.

All kernels stride over groups of rows by ``gl_NumWorkGroups.x``, and every thread of a workgroup meets at each barrier.
"""

from __future__ import annotations

from string import Template

__all__ = ["ACCUMULATE", "EDGE", "ELEMENTS", "FETCH_COLUMNS", "FETCH_ROWS", "MAIN", "SCORES", "SHARED", "STAGE",
           "TILES"]

#: ``items`` holds one value for each of 128 items and 16 rows, four rows in a vector; a fifth one keeps columns on
#: different banks. ``part`` has what 16 threads a row make of them, ``row_value`` the published values of rows.
SHARED = Template("""\
shared vec4 items[${block}*5];
shared uint part[${threads}];
shared uint row_value[${slots}][${rows}];
""")

#: First steps of the tree of a row (F3): 128 items become 16, one a thread.
STAGE = Template("""\
uint stage_${name}(uint t){
  uint row=t%${rows}u, lane=t/${rows}u, at=lane*5u+row/4u, x=row%4u;
  uint a[8];
  for(uint n=0u;n<8u;n++) a[n]=F2U(items[at+n*80u][x]);
${steps}
  return a[0];
}
uint finish_${name}(uint t){
  uint a[16];
  for(uint n=0u;n<16u;n++) a[n]=part[n*${rows}u+t];
${last_steps}
  return ${result};
}
""")

#: Tiles of the matmul operands: queries by (k, row), and keys by (k, item) in the memory of the items, which are made
#: of the scores later. Beyond the edge a is -0 and b is +0 (R5).
TILES = Template("""\
shared vec4 queries[${step}*4];
#define KEY(k) items[(k)*${quads}u+j/4u][j%4u]
""")

#: A key operand stored (items, k), or by strides: four values of k at a time where addresses allow it.
FETCH_ROWS = Template("""\
        for(uint n=side;n<${quads}u;n+=2u){
          uint y=k1+n*4u, whole=j<width&&y<depth?min(depth-y,4u):0u, at=${at};
          uvec4 v=uvec4(${pad_b});
          if(whole==4u&&(at&3u)==0u${adjacent}){
            v=${quad};
          } else {
            for(uint i=0u;i<whole;i++) v[i]=${load};
          }
          KEY(n*4u)=U2F(v.x);
          KEY(n*4u+1u)=U2F(v.y);
          KEY(n*4u+2u)=U2F(v.z);
          KEY(n*4u+3u)=U2F(v.w);
        }
""")

#: A key operand stored (k, items).
FETCH_COLUMNS = Template("""\
        for(uint n=side;n<${step}u;n+=2u)
          KEY(n)=U2F(j<width&&k1+n<depth?${load}:${pad_b});
""")

#: Scores of the block (F4): k ascending, a thread has one item and eight rows.
SCORES = Template("""\
      vec4 acc0=vec4(U2F(depth==0u?nought:${identity})), acc1=acc0;
      for(uint k1=0u;k1<depth;k1+=${step}u){
        {
          uint y=${query_k}, r=${query_row};
          queries[y*4u+r/4u][r%4u]=U2F(r<live&&k1+y<depth?${query}:${pad_a});
        }
${fetch}        barrier();
        if(side*8u<live){
          for(uint k=0u;k<${step}u;k++){
            vec4 b=vec4(KEY(k)), p;
            p=queries[k*4u+side*2u]*b; acc0=acc0+p;
            p=queries[k*4u+side*2u+1u]*b; acc1=acc1+p;
          }
        }
        barrier();
      }
      float score[8];
${spread}
""")

#: Elements of a level: a thread has one item (column) and eight rows. Rows and items beyond the edge repeat the last.
ELEMENTS = Template("""\
      for(uint e=0u;e<8u;e++){
        uint r=side*8u+e;
        if(r<live){
          uint batch_row=m0+r, row=batch*height+batch_row, col=min(k0+j,cols-1u), i=row*cols+col;
${body}
        }
      }
""")

#: Weighted vectors of the block (F5), items ascending; a thread has one column and 4, 8 or 16 rows.
ACCUMULATE = Template("""\
      {
${scale}
        for(uint item=0u;item<whole_items;item++){
          vec4 v=vec4(U2F(${vector})), p;
          p=items[item*5u+quad]*v; sum0=sum0+p;
          if(quad_step<4u){ p=items[item*5u+quad+quad_step]*v; sum1=sum1+p; }
          if(quad_step<2u){
            p=items[item*5u+2u]*v; sum2=sum2+p;
            p=items[item*5u+3u]*v; sum3=sum3+p;
          }
        }
${edge}
      }
""")

#: tri_skip (F7): near the diagonal the rows end one item after the other.
EDGE = Template("""\
        for(uint item=whole_items;item<items_end;item++){
          vec4 v=vec4(U2F(${vector})), p;
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
""")

MAIN = Template("""\
void main(){
  uint cols=W(1), rows=W(2), out_cols=W(3)${head};
  uint height=rows/batches, t=gl_LocalInvocationID.x, j=t%${block}u, side=t/${block}u, nought=gl_WorkGroupID.y;
  uint tiles=(height-1u)/${rows}u+1u, chunks=(out_cols-1u)/${columns}u+1u, groups=tiles*batches*chunks;
  for(uint group=gl_WorkGroupID.x;group<groups;group+=gl_NumWorkGroups.x){
    uint chunk=group%chunks, m0=(group/chunks%tiles)*${rows}u, batch=group/chunks/tiles, live=min(height-m0,${rows}u);
${begin}
    for(uint k0=0u;k0<${stop};k0+=${block}u){
      uint width=min(cols-k0,${block}u);
${block_code}
      barrier();
      if(cols-k0<=${block}u) break;
    }
${end}
    barrier();
    if(groups-group<=gl_NumWorkGroups.x) break;
  }
}
""")
