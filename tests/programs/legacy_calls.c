/* A program of legacy calls: describes one convolution, asks for algorithms and
 * prints what it got. Arguments as NAME=VALUE:
 *   call=get|find|findex  op=fwd|bwd_data|bwd_filter  limit=BYTES (findex)
 *   count=N  math=0..3  type=f16|f32  repeat=N */
#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 16

static const char* option(int argc, char** argv, const char* name, const char* absent) {
  const size_t n = strlen(name);
  for (int i = 1; i < argc; ++i) {
    if (strncmp(argv[i], name, n) == 0 && argv[i][n] == '=') return argv[i] + n + 1;
  }
  return absent;
}

static void must(cudnnStatus_t status) {
  if (status != CUDNN_STATUS_SUCCESS) {
    fprintf(stderr, "status %d\n", (int)status);
    exit(1);
  }
}

static void print(int count, const cudnnConvolutionFwdAlgoPerf_t* results) {
  printf("{\"results\":[");
  for (int i = 0; i < count; ++i) {
    printf(
        "%s{\"algo\":%d,\"status\":%d,\"time\":%g,\"memory\":%zu,\"deterministic\":%d,\"math\":%d}",
        i > 0 ? "," : "", (int)results[i].algo, (int)results[i].status, (double)results[i].time,
        results[i].memory, (int)results[i].determinism, (int)results[i].mathType);
  }
  printf("]}\n");
}

int main(int argc, char** argv) {
  const char* call = option(argc, argv, "call", "find");
  const char* op = option(argc, argv, "op", "fwd");
  const int requested = atoi(option(argc, argv, "count", "8"));
  const size_t limit = strtoull(option(argc, argv, "limit", "1073741824"), NULL, 10);
  const cudnnDataType_t type =
      strcmp(option(argc, argv, "type", "f16"), "f16") == 0 ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT;
  cudnnHandle_t handle;
  cudnnTensorDescriptor_t x, y;
  cudnnFilterDescriptor_t w;
  cudnnConvolutionDescriptor_t conv;
  const int pad[2] = {1, 1}, one[2] = {1, 1};
  must(cudnnCreate(&handle));
  must(cudnnCreateTensorDescriptor(&x));
  must(cudnnCreateTensorDescriptor(&y));
  must(cudnnCreateFilterDescriptor(&w));
  must(cudnnCreateConvolutionDescriptor(&conv));
  must(cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NHWC, type, 32, 64, 56, 56));
  must(cudnnSetTensor4dDescriptor(y, CUDNN_TENSOR_NHWC, type, 32, 64, 56, 56));
  must(cudnnSetFilter4dDescriptor(w, type, CUDNN_TENSOR_NHWC, 64, 64, 3, 3));
  must(cudnnSetConvolutionNdDescriptor(conv, 2, pad, one, one, CUDNN_CROSS_CORRELATION,
                                       CUDNN_DATA_FLOAT));
  must(cudnnSetConvolutionMathType(conv, (cudnnMathType_t)atoi(option(argc, argv, "math", "2"))));
  for (int i = 0; i < atoi(option(argc, argv, "repeat", "1")); ++i) {
    int got = 0;
    /* The three operations' results differ in the type of one enumerator. */
    cudnnConvolutionFwdAlgoPerf_t results[MOST];
    cudnnConvolutionBwdDataAlgoPerf_t* data = (void*)results;
    cudnnConvolutionBwdFilterAlgoPerf_t* filter = (void*)results;
    char memory[4];
    memset(results, 0, sizeof results);
    const int kind = strcmp(call, "get") == 0 ? 0 : strcmp(call, "find") == 0 ? 1 : 2;
    if (strcmp(op, "fwd") == 0) {
      must(kind == 0   ? cudnnGetConvolutionForwardAlgorithm_v7(handle, x, w, conv, y, requested,
                                                                &got, results)
           : kind == 1 ? cudnnFindConvolutionForwardAlgorithm(handle, x, w, conv, y, requested,
                                                              &got, results)
                       : cudnnFindConvolutionForwardAlgorithmEx(handle, x, memory, w, memory, conv,
                                                                y, memory, requested, &got, results,
                                                                memory, limit));
    } else if (strcmp(op, "bwd_data") == 0) {
      must(kind == 0 ? cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, w, y, conv, x, requested,
                                                                   &got, data)
           : kind == 1 ? cudnnFindConvolutionBackwardDataAlgorithm(handle, w, y, conv, x, requested,
                                                                   &got, data)
                       : cudnnFindConvolutionBackwardDataAlgorithmEx(handle, w, memory, y, memory,
                                                                     conv, x, memory, requested,
                                                                     &got, data, memory, limit));
    } else {
      must(kind == 0   ? cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, x, y, conv, w,
                                                                       requested, &got, filter)
           : kind == 1 ? cudnnFindConvolutionBackwardFilterAlgorithm(handle, x, y, conv, w,
                                                                     requested, &got, filter)
                       : cudnnFindConvolutionBackwardFilterAlgorithmEx(
                             handle, x, memory, y, memory, conv, w, memory, requested, &got, filter,
                             memory, limit));
    }
    print(got, results);
  }
  return 0;
}
