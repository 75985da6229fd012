// Edge cases of typed arguments: addresses as numbers, enums, large structs, tensor maps at any address, and
// how often a list of types is checked.
#include <barrier>
#include <cmath>
#include <map>
#include <mutex>
#include <thread>

#include "runtime/fake_runtime.hpp"
#include "runtime/launch/argument_toml.hpp"

namespace kiln::testing {
namespace {

struct Page {
  unsigned char bytes[4096];
};
struct alignas(64) TensorMap {  // has the layout of CUtensorMap
  unsigned char bytes[128];
};
enum class Mode8 : std::uint8_t { off, on = 200 };
enum Plain { kMinus = -3 };

class ArgumentTypes : public FakeRuntime {
 protected:
  static Kernel numbers(Service& service) {
    add(service, "numbers",
        argument_toml("p", "ptr<f32>") + argument_toml("i", "i32") + argument_toml("l", "i64") + kOneBlock,
        "template <int N> __global__ void f(float* p, int i, long long l) { *p = i + l; }");
    return service.open("numbers").get();
  }
};

TEST_F(ArgumentTypes, AnAddressKeptAsANumberIsAPointer) {
  Service service(options());
  const Kernel k = numbers(service);
  const toolchain::CUdeviceptr address = 0x7fff00001000;
  k(nullptr, DevicePtr(address), 1, 2);
  EXPECT_EQ(argument<std::uint64_t>(last_launch(), 0), address);
  k(nullptr, DevicePtr(), 1, 2);
  EXPECT_EQ(argument<std::uint64_t>(last_launch(), 0), 0u);
  expect_error(Errc::invalid_argument, {"'p'", "unsigned integer of 8 bytes", "ptr<f32>"},
               [&] { k(nullptr, address, 1, 2); });
  expect_error(Errc::invalid_argument, {"'i'", "a pointer", "i32"},
               [&] { k(nullptr, DevicePtr(address), DevicePtr(1), 2); });
  RmsNormCall call;
  const Kernel aligned = service.open("rms_norm").get(Dtype::bf16, 4096);
  expect_error(Errc::requirement, {"'x'", "0x200008", "16 bytes"},
               [&] { aligned(nullptr, call.out, DevicePtr(0x200008), call.w, 8, 4096, 4096, 1e-6f); });
}

TEST_F(ArgumentTypes, EnumsAreTheirNumbers) {
  Service service(options());
  const Kernel k = numbers(service);
  k(nullptr, nullptr, Mode8::on, kMinus);
  EXPECT_EQ(argument<std::int32_t>(last_launch(), 1), 200);
  EXPECT_EQ(argument<std::int64_t>(last_launch(), 2), -3);
}

TEST_F(ArgumentTypes, AFloatingPointNumberCanBeRequired) {
  Service service(options());
  add(service, "capped",
      argument_toml("n", "i32") + argument_toml("cap", "f32", "optional = true\nvalue = 0.0") +
          argument_toml("wide", "f64", "optional = true\nvalue = -0.25") +
          "[[require]]\nexpr = \"cap > 0\"\nmessage = \"cap = {cap} must be above 0, with n = {n}\"\n"
          "[[require]]\nexpr = \"wide <= 0\"\nmessage = \"wide = {wide}\"\n" +
          kOneBlock,
      "template <int N> __global__ void f(int n, float cap, double wide) {}");
  const Kernel k = service.open("capped").get();
  k(nullptr, 1, 0.001f);
  k(nullptr, 1, 1e-30);  // a double is converted
  k(nullptr, 1, 2.0f, -1e300);
  expect_error(Errc::requirement, {"cap = 0 must be above 0, with n = 7", "cap > 0"}, [&] { k(nullptr, 7); });
  expect_error(Errc::requirement, {"cap = -0.5 must"}, [&] { k(nullptr, 7, -0.5f); });
  expect_error(Errc::requirement, {"cap = nan must"}, [&] { k(nullptr, 7, std::nanf("")); });
  expect_error(Errc::requirement, {"cap = 0 must"}, [&] { k(nullptr, 7, 1e-60); });
  expect_error(Errc::requirement, {"wide = 1e-300"}, [&] { k(nullptr, 7, 1.0f, 1e-300); });
}

TEST_F(ArgumentTypes, AStructOfAPageArrivesWhole) {
  Service service(options());
  add(service, "page", argument_toml("out", "ptr<u8>") + argument_toml("page", "struct<4096>") + kOneBlock,
      "struct Page { unsigned char bytes[4096]; };\ntemplate <int N> __global__ void f(unsigned char* out, "
      "Page page) { *out = page.bytes[threadIdx.x]; }");
  const Kernel k = service.open("page").get();
  Page page;
  for (std::size_t i = 0; i < sizeof page.bytes; ++i) page.bytes[i] = static_cast<unsigned char>(i * 7);
  k(nullptr, device_pointer<unsigned char>(), page);
  EXPECT_EQ(std::memcmp(argument<Page>(last_launch(), 1).bytes, page.bytes, sizeof page), 0);
  expect_error(Errc::invalid_argument, {"'page'", "a struct of 128 bytes", "struct<4096>"},
               [&] { k(nullptr, device_pointer<unsigned char>(), TensorMap{}); });
}

TEST_F(ArgumentTypes, ATensorMapIsTakenFromAnyAddress) {
  Service service(options());
  add(service, "mapped",
      argument_toml("n", "i32") + argument_toml("map", "tensormap") + argument_toml("m", "i32") + kOneBlock,
      "struct alignas(64) Map { unsigned char bytes[128]; };\ntemplate <int N> __global__ void f(int n, "
      "const "
      "__grid_constant__ Map map, int m) { if (n == map.bytes[m]) __trap(); }");
  const Kernel k = service.open("mapped").get();
  TensorMap map;
  for (std::size_t i = 0; i < sizeof map.bytes; ++i) map.bytes[i] = static_cast<unsigned char>(200 - i);
  const auto arrived = [&] {
    const kiln_fake_launch seen = last_launch();
    EXPECT_EQ(argument<std::int32_t>(seen, 0), 11);
    EXPECT_EQ(argument<std::int32_t>(seen, 2), 12);
    return std::memcmp(argument<TensorMap>(seen, 1).bytes, map.bytes, sizeof map.bytes) == 0;
  };
  k(nullptr, 11, map, 12);
  EXPECT_TRUE(arrived());
  alignas(64) unsigned char room[256];
  for (const std::size_t offset : {1u, 8u, 32u, 63u}) {  // any alignment, like bytes of a file or a message
    std::memcpy(room + offset, map.bytes, sizeof map.bytes);
    const int n = 11, m = 12;
    const void* data[] = {&n, room + offset, &m};
    const kiln_arg_type types[] = {{KILN_ARG_SIGNED, 4}, {KILN_ARG_BYTES, 128}, {KILN_ARG_SIGNED, 4}};
    ASSERT_EQ(kiln_kernel_launch(k.handle(), nullptr, types, data, 3), KILN_OK) << kiln_last_error()->message;
    EXPECT_TRUE(arrived()) << "offset " << offset;
  }
  expect_error(Errc::invalid_argument, {"'map'", "a pointer of 8 bytes", "tensormap"},
               [&] { k(nullptr, 11, &map, 12); });
}

TEST_F(ArgumentTypes, NumbersAreReadFromAnyAddress) {
  Service service(options());
  const Kernel k = numbers(service);
  unsigned char room[32] = {};
  const std::uint64_t pointer = 0x10000;
  const std::int64_t wide = -5;
  std::memcpy(room + 1, &pointer, 8);
  std::memcpy(room + 11, &wide, 8);
  const void* data[] = {room + 1, room + 11, room + 11};  // an i64 as i32, which converts it, and as i64
  const kiln_arg_type types[] = {{KILN_ARG_POINTER, 8}, {KILN_ARG_SIGNED, 8}, {KILN_ARG_SIGNED, 8}};
  ASSERT_EQ(kiln_kernel_launch(k.handle(), nullptr, types, data, 3), KILN_OK) << kiln_last_error()->message;
  EXPECT_EQ(argument<std::uint64_t>(last_launch(), 0), pointer);
  EXPECT_EQ(argument<std::int32_t>(last_launch(), 1), -5);
  EXPECT_EQ(argument<std::int64_t>(last_launch(), 2), -5);
}

TEST_F(ArgumentTypes, AListIsKnownByItsContentNotItsAddress) {
  Service service(options());
  const Kernel k = numbers(service);
  const std::uint64_t p = 0x10000;
  const std::int64_t l = 2;
  const float f = 1;
  std::int32_t i = -1;
  const void* data[] = {&p, &i, &l};
  kiln_arg_type types[] = {{KILN_ARG_POINTER, 8}, {KILN_ARG_SIGNED, 4}, {KILN_ARG_SIGNED, 8}};
  ASSERT_EQ(kiln_kernel_launch(k.handle(), nullptr, types, data, 3), KILN_OK);
  types[1] = {KILN_ARG_UNSIGNED, 4};  // the array is the same, its content is not
  EXPECT_EQ(kiln_kernel_launch(k.handle(), nullptr, types, data, 3),
            static_cast<int>(Errc::invalid_argument));
  EXPECT_NE(std::string(kiln_last_error()->message).find("4294967295"), std::string::npos);
  types[1] = {KILN_ARG_FLOAT, 4};
  data[1] = &f;
  EXPECT_EQ(kiln_kernel_launch(k.handle(), nullptr, types, data, 3),
            static_cast<int>(Errc::invalid_argument));
  EXPECT_EQ(kiln_fake_launches(), 1u);
}

TEST_F(ArgumentTypes, MoreListsThanAreRememberedStillWork) {
  Service service(options());
  const Kernel k = numbers(service);
  float* p = device_pointer<float>();
  for (int round = 0; round < 3; ++round) {
    const auto with = [&](auto i) {
      k(nullptr, p, i, std::int64_t{7});
      EXPECT_EQ(argument<std::int32_t>(last_launch(), 1), 3);
      k(nullptr, p, i, std::int32_t{7});
      EXPECT_EQ(argument<std::int64_t>(last_launch(), 2), 7);
      EXPECT_THROW(k(nullptr, p, i, 1.0f), Error);
    };
    with(std::int8_t{3}), with(std::uint8_t{3}), with(std::int16_t{3}), with(std::uint16_t{3});
    with(std::int32_t{3}), with(std::uint32_t{3}), with(std::int64_t{3}), with(std::uint64_t{3});
  }
}

TEST_F(ArgumentTypes, ThreadsThatAlternateTwoListsGetTheirOwnValues) {
  Service service(options());
  const Kernel k = numbers(service);
  constexpr int kThreads = 8, kRounds = 200;
  struct Seen {
    std::mutex mutex;
    std::map<std::int64_t, int> values;
    int wrong = 0;
  } seen;
  kiln_fake_on_launch(
      [](const kiln_fake_launch* launch, void* user) {
        Seen& all = *static_cast<Seen*>(user);
        const std::lock_guard lock(all.mutex);
        const auto i = argument<std::int32_t>(*launch, 1);
        const auto l = argument<std::int64_t>(*launch, 2);
        if (l != i * std::int64_t{1000}) ++all.wrong;
        ++all.values[i];
      },
      &seen);
  std::barrier start(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      cu().cuCtxSetCurrent(contexts_[0]);
      start.arrive_and_wait();
      for (int n = 0; n < kRounds; ++n) {
        const int i = t * kRounds + n;
        if (n % 2 == 0)
          k(nullptr, nullptr, i, std::int64_t{i} * 1000);
        else
          k(nullptr, nullptr, static_cast<std::size_t>(i), static_cast<std::uint32_t>(i) * 1000u);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  kiln_fake_on_launch(nullptr, nullptr);
  EXPECT_EQ(seen.wrong, 0);
  EXPECT_EQ(seen.values.size(), static_cast<std::size_t>(kThreads * kRounds));
}

}  // namespace
}  // namespace kiln::testing
