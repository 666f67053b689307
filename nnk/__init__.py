"""nnk: tensor expressions, one fused Vulkan compute kernel each, the same bits on every device."""
