/* The program with cuDNN among its own libraries. */
#include "raw_calls.h"

int main(int argc, char** argv) { return raw_main(argc, argv); }
