// Verilator's models behind C functions: a cycle is one call. Outputs are those before the rising edge, which the inputs of the
// same cycle can change.
#include <cstdint>
#include <cstring>
#include "Vcrc64.h"
#include "Vcrc_wide_crc32.h"
#include "Vcrc_wide_crc32c.h"
#include "Vcrc_wide_koopman.h"
#include "verilated.h"

// The same as in src/ffi.rs.
struct Crc64In {
  uint64_t data;
  uint32_t polynomial, init, xor_out;
  uint8_t rst, set_poly, valid, last, keep;
};
struct CrcWideIn {
  uint32_t data[16];
  uint32_t init, xor_out;
  uint16_t keep;
  uint8_t rst, valid, last;
};
struct CrcOut {
  uint32_t digest;
  uint8_t ready, digest_valid;
};

template <class Model> struct Simulation {
  VerilatedContext context;
  Model model;
  explicit Simulation(int seed) : model((context.randReset(2), context.randSeed(seed), &context)) {}
};

extern "C" void *crc64_new(int seed) { return new Simulation<Vcrc64>(seed); }
extern "C" void crc64_free(void *simulation) { delete static_cast<Simulation<Vcrc64> *>(simulation); }
extern "C" void crc64_cycle(void *simulation, const Crc64In *in, CrcOut *out) {
  Vcrc64 &model = static_cast<Simulation<Vcrc64> *>(simulation)->model;
  model.rst = in->rst;
  model.set_poly_i = in->set_poly;
  model.poly_i = in->polynomial;
  model.init_i = in->init;
  model.xor_out_i = in->xor_out;
  model.valid_i = in->valid;
  model.last_i = in->last;
  model.keep_i = in->keep;
  model.data_i = in->data;
  model.clk = 0;
  model.eval();
  out->ready = model.ready_o;
  out->digest_valid = model.digest_valid_o;
  out->digest = model.digest_o;
  model.clk = 1;
  model.eval();
}

template <class Model> static void wide_cycle(void *simulation, const CrcWideIn *in, CrcOut *out) {
  Model &model = static_cast<Simulation<Model> *>(simulation)->model;
  model.rst = in->rst;
  model.init_i = in->init;
  model.xor_out_i = in->xor_out;
  model.valid_i = in->valid;
  model.last_i = in->last;
  model.keep_i = in->keep;
  memcpy(model.data_i.data(), in->data, sizeof in->data);
  model.clk = 0;
  model.eval();
  out->ready = 1;
  out->digest_valid = model.digest_valid_o;
  out->digest = model.digest_o;
  model.clk = 1;
  model.eval();
}

#define WIDE(name)                                                                                          \
  extern "C" void *name##_new(int seed) { return new Simulation<V##name>(seed); }                           \
  extern "C" void name##_free(void *simulation) { delete static_cast<Simulation<V##name> *>(simulation); }  \
  extern "C" void name##_cycle(void *simulation, const CrcWideIn *in, CrcOut *out) {                        \
    wide_cycle<V##name>(simulation, in, out);                                                               \
  }
WIDE(crc_wide_crc32c)
WIDE(crc_wide_crc32)
WIDE(crc_wide_koopman)
