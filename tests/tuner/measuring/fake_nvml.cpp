// A library with the functions of NVML that attune calls: one GPU, which takes 4 mJ between any two
// readings, and one that has no counter.
#include <cstring>

extern "C" {

int nvmlInit_v2() { return 0; }

const char* nvmlErrorString(int code) { return code == 3 ? "Not Supported" : "Not Found"; }

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  static char devices[2];
  if (std::strcmp(uuid, "GPU-with-a-counter") == 0)
    *device = &devices[0];
  else if (std::strcmp(uuid, "GPU-without") == 0)
    *device = &devices[1];
  else
    return 6;
  static_cast<char*>(*device)[0] = *device == &devices[0] ? 1 : 0;
  return 0;
}

int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* millijoules) {
  static unsigned long long counter = 1'000'000;
  if (static_cast<char*>(device)[0] == 0) return 3;
  *millijoules = counter += 4;
  return 0;
}

}  // extern "C"
