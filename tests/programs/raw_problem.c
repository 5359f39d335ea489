/* Builds the operation graph of a problem. */
#include <float.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raw_calls.h"

static _Thread_local int64_t next_uid;

void fail(const char* what, cudnnStatus_t status) {
  fprintf(stderr, "%s: status %d\n", what, (int)status);
  exit(1);
}

static void must(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS) {
    fail(what, status);
  }
}

static cudnnBackendDescriptor_t create(struct problem* problem, cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t descriptor = NULL;
  must(CUDNN_CALL(cudnnBackendCreateDescriptor)(type, &descriptor), "create");
  problem->parts[problem->part_count++] = descriptor;
  return descriptor;
}

static void set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  must(CUDNN_CALL(cudnnBackendSetAttribute)(descriptor, name, type, count, values), "set");
}

static void finalize(cudnnBackendDescriptor_t descriptor) {
  must(CUDNN_CALL(cudnnBackendFinalize)(descriptor), "finalize");
}

static void packed(const struct options* options, const int64_t* dims, int64_t* strides) {
  int64_t next = 1;
  if (options->nhwc) {
    strides[1] = 1;
    next = dims[1];
  }
  for (int i = options->rank - 1; i >= 0; --i) {
    if (i == 1 && options->nhwc) continue;
    strides[i] = next;
    next *= dims[i];
  }
}

static cudnnBackendDescriptor_t tensor(struct problem* problem, const struct options* options,
                                       const int64_t* dims, cudnnDataType_t type, int is_virtual) {
  cudnnBackendDescriptor_t d = create(problem, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  int64_t strides[MAX_RANK];
  const int64_t uid = ++next_uid;
  packed(options, dims, strides);
  set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
  set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, options->rank, dims);
  set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, options->rank, strides);
  set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &options->alignment);
  if (is_virtual) {
    const bool yes = true;
    set(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
  }
  finalize(d);
  return d;
}

static cudnnBackendDescriptor_t convolution(struct problem* problem,
                                            const struct options* options) {
  cudnnBackendDescriptor_t d = create(problem, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const int64_t spatial = options->rank - 2;
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  set(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &spatial);
  set(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &options->compute);
  set(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  set(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, spatial, options->pad);
  set(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, spatial, options->pad);
  set(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, spatial, options->dilation);
  set(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, spatial, options->stride);
  finalize(d);
  return d;
}

static const struct {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t conv, alpha, beta, x, w, y;
} kOperations[3] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY}};

static cudnnBackendDescriptor_t pointwise(struct problem* problem, cudnnPointwiseMode_t mode,
                                          cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
                                          float alpha2, cudnnBackendDescriptor_t y) {
  cudnnBackendDescriptor_t pw = create(problem, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  const cudnnDataType_t math = CUDNN_DATA_FLOAT;
  const float one = 1;
  set(pw, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  set(pw, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &math);
  if (mode == CUDNN_POINTWISE_RELU_FWD) {
    const double lower = 0, upper = DBL_MAX, slope = 0;
    set(pw, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, CUDNN_TYPE_DOUBLE, 1, &lower);
    set(pw, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, CUDNN_TYPE_DOUBLE, 1, &upper);
    set(pw, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, CUDNN_TYPE_DOUBLE, 1, &slope);
  }
  finalize(pw);
  cudnnBackendDescriptor_t op = create(problem, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &pw);
  set(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x);
  if (b != NULL) {
    set(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &b);
    set(op, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, CUDNN_TYPE_FLOAT, 1, &one);
    set(op, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, CUDNN_TYPE_FLOAT, 1, &alpha2);
  }
  set(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y);
  finalize(op);
  return op;
}

static cudnnBackendDescriptor_t read_device(struct problem* problem, const char* path) {
  FILE* file = fopen(path, "rb");
  char json[65536];
  const size_t size = file == NULL ? 0 : fread(json, 1, sizeof json, file);
  if (size == 0) {
    fprintf(stderr, "%s: cannot be read\n", path);
    exit(2);
  }
  fclose(file);
  cudnnBackendDescriptor_t d = create(problem, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  set(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)size, json);
  finalize(d);
  return d;
}

void build_problem(const struct options* options, struct problem* problem) {
  memset(problem, 0, sizeof *problem);
  problem->device = read_device(problem, options->profile);
  int64_t y_dims[MAX_RANK] = {options->x[0], options->w[0]};
  for (int i = 2; i < options->rank; ++i) {
    const int64_t span = options->dilation[i - 2] * (options->w[i] - 1) + 1;
    y_dims[i] = (options->x[i] + 2 * options->pad[i - 2] - span) / options->stride[i - 2] + 1;
  }
  const int fused = options->add + options->bias + options->relu;
  cudnnBackendDescriptor_t x = tensor(problem, options, options->x, options->type, 0);
  cudnnBackendDescriptor_t w = tensor(problem, options, options->w, options->type, 0);
  cudnnBackendDescriptor_t y =
      tensor(problem, options, y_dims, fused ? options->mid : options->type, fused > 0);
  cudnnBackendDescriptor_t conv = convolution(problem, options);
  cudnnBackendDescriptor_t operations[4];
  int64_t count = 0;
  const int kind = options->operation;
  cudnnBackendDescriptor_t op = create(problem, kOperations[kind].type);
  const float one = 1, zero = 0;
  set(op, kOperations[kind].conv, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &conv);
  set(op, kOperations[kind].x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x);
  set(op, kOperations[kind].w, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &w);
  set(op, kOperations[kind].y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y);
  set(op, kOperations[kind].alpha, CUDNN_TYPE_FLOAT, 1, &one);
  set(op, kOperations[kind].beta, CUDNN_TYPE_FLOAT, 1, &zero);
  finalize(op);
  operations[count++] = op;

  const int64_t bias_dims[MAX_RANK] = {1, options->w[0], 1, 1, 1};
  int left = fused;
  for (int step = 0; step < 3; ++step) {
    if (!(step == 0 ? options->add : step == 1 ? options->bias : options->relu)) continue;
    --left;
    cudnnBackendDescriptor_t b = step == 0   ? tensor(problem, options, y_dims, options->type, 0)
                                 : step == 1 ? tensor(problem, options, bias_dims, options->type, 0)
                                             : NULL;
    cudnnBackendDescriptor_t out =
        tensor(problem, options, y_dims, left > 0 ? options->mid : options->type, left > 0);
    operations[count++] =
        pointwise(problem, step == 2 ? CUDNN_POINTWISE_RELU_FWD : CUDNN_POINTWISE_ADD, y, b,
                  step == 0 ? options->alpha2 : 1, out);
    y = out;
  }
  problem->graph = create(problem, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  set(problem->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count,
      operations);
  finalize(problem->graph);
}

void destroy_problem(struct problem* problem) {
  while (problem->part_count > 0) {
    CUDNN_CALL(cudnnBackendDestroyDescriptor)(problem->parts[--problem->part_count]);
  }
}
