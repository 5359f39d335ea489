"""Problems in text form."""

# One of each kind that a problem can be: operations, element types, ranks,
# groups, dilation, padding, strides, epilogues, modes.
VARIED = [
    "fwd,x=1x3x224x224,w=64x3x7x7,pad=3,stride=2,f32",
    "fwd,x=16x64x56x56,w=64x64x3x3,pad=1,nhwc,f16",
    "fwd,x=16x64x56x56,w=64x64x3x3,pad=1,nchw,f16",
    "fwd,x=8x64x56x56,w=256x64x1x1,nhwc,bf16",
    "fwd,x=8x64x56x56,w=256x64x1x1,nchw,f32",
    "fwd,x=4x128x28x28,w=128x128x3x3,pad=1,nchw,f64",
    "fwd,x=4x128x28x28,w=128x128x3x3,pad=1,nhwc,i8",
    "fwd,x=4x128x28x28,w=128x128x3x3,pad=1,stride=2,nhwc,f16",
    "fwd,x=4x256x14x14,w=256x256x3x3,pad=2,dilation=2,nhwc,f16",
    "fwd,x=4x256x14x14,w=256x256x3x3,pad=2,dilation=2,nchw,f32",
    "fwd,x=4x256x14x14,w=256x8x3x3,pad=1,groups=32,nhwc,f16",
    "fwd,x=4x256x14x14,w=256x8x3x3,pad=1,groups=32,nchw,f32",
    "fwd,x=4x96x56x56,w=96x1x3x3,pad=1,groups=96,nhwc,f16",
    "fwd,x=4x96x56x56,w=96x1x3x3,pad=1,groups=96,nchw,f32",
    "fwd,x=4x64x33x33,w=64x64x3x3,pad=0:1x0:1,stride=2,nhwc,f16",
    "fwd,x=4x64x33x33,w=64x64x2x2,pad=0:1x0:1,nchw,f32",
    "fwd,x=8x80x3000,w=512x80x3,pad=1,nchw,f32",
    "fwd,x=8x80x3000,w=512x80x3,pad=1,nhwc,f16",
    "fwd,x=2x16x16x56x56,w=32x16x3x3x3,pad=1,nchw,f32",
    "fwd,x=2x16x16x56x56,w=32x16x3x3x3,pad=1,nhwc,f16",
    "fwd,x=4x64x56x56,w=64x64x3x3,pad=1,nhwc,f16,epilogue=bias",
    "fwd,x=4x64x56x56,w=64x64x3x3,pad=1,nhwc,f16,epilogue=bias+relu",
    "fwd,x=4x64x56x56,w=64x64x3x3,pad=1,nhwc,f16,epilogue=add+bias+relu",
    "fwd,x=4x64x56x56,w=64x64x3x3,pad=1,nhwc,f16,mode=conv",
    "fwd,x=4x64x56x56,w=64x64x5x5,pad=2,nhwc,f16,align=4",
    "fwd,x=4x64x56x56,w=64x64x1x7,pad=0x3,nhwc,f16",
    "bwd_data,x=16x64x56x56,w=64x64x3x3,pad=1,nhwc,f16",
    "bwd_data,x=16x64x56x56,w=64x64x3x3,pad=1,nchw,f32",
    "bwd_data,x=4x64x56x56,w=128x64x3x3,pad=1,stride=2,nhwc,bf16",
    "bwd_data,x=4x256x14x14,w=256x8x3x3,pad=1,groups=32,nhwc,f16",
    "bwd_data,x=4x96x28x28,w=96x1x3x3,pad=1,groups=96,nhwc,f16",
    "bwd_data,x=2x16x16x28x28,w=32x16x3x3x3,pad=1,nhwc,f16",
    "bwd_data,x=4x64x28x28,w=64x64x3x3,pad=1,nchw,f64",
    "bwd_filter,x=16x64x56x56,w=64x64x3x3,pad=1,nhwc,f16",
    "bwd_filter,x=16x64x56x56,w=64x64x3x3,pad=1,nchw,f32",
    "bwd_filter,x=4x64x56x56,w=128x64x3x3,pad=1,stride=2,nhwc,bf16",
    "bwd_filter,x=4x256x14x14,w=256x8x3x3,pad=1,groups=32,nhwc,f16",
    "bwd_filter,x=4x96x28x28,w=96x1x3x3,pad=1,groups=96,nhwc,f16",
    "bwd_filter,x=2x16x16x28x28,w=32x16x3x3x3,pad=1,nhwc,f16",
    "bwd_filter,x=4x64x28x28,w=64x64x3x3,pad=1,nchw,f64",
]


def numbered(index):
    """A problem that no other index gives, in canonical form."""
    return (
        f"fwd,x=1x16x{8 + index // 900}x{8 + index % 900},w=16x16x3x3,"
        "pad=1x1,stride=1x1,dilation=1x1,groups=1,nhwc,f16,acc=f32"
    )


def numbered_list(first, count):
    return [numbered(i) for i in range(first, first + count)]
