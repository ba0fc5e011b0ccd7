// Stands for libcuda.so.1 where the driver is older than the toolkit.

extern "C" int cuInit(unsigned /*flags*/) { return 0; }

extern "C" int cuDriverGetVersion(int* version) {
  *version = 9000;
  return 0;
}
