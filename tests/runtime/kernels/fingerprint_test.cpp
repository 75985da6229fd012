// Fingerprints of ranks: which differences between ranks change them, and which do not.
#include <nlohmann/json.hpp>

#include "cache/store/store.hpp"
#include "compile/key/facts.hpp"
#include "runtime/core_fixture.hpp"

namespace kiln::testing {
namespace {

class Fingerprint : public Core {
 protected:
  /// The fingerprint of a rank that loads s<N> for each N of `wanted`, in this order.
  std::string of(const std::vector<int>& wanted, const Options& o) {
    Service service(o);
    small(service, "s");
    const KernelTemplate t = service.open("s");
    for (const int n : wanted) t.get(n);
    return service.fingerprint();
  }
  std::string of(const std::vector<int>& wanted) { return of(wanted, options()); }
};

TEST_F(Fingerprint, IsEqualWhateverTheOrderAndTheSource) {
  const std::string compiled = of({1, 2, 3});
  EXPECT_EQ(compiled.size(), 32u);
  EXPECT_EQ(compiled.find_first_not_of("0123456789abcdef"), std::string::npos) << compiled;
  EXPECT_EQ(of({3, 1, 2}), compiled) << "from disk, in another order";
  EXPECT_EQ(of({3, 3, 1, 2, 1}), compiled);
  Options elsewhere = options();
  elsewhere.cache_dir = tree_.at("another");
  EXPECT_EQ(of({2, 3, 1}, elsewhere), compiled) << "compiled again";
}

TEST_F(Fingerprint, DiffersByOneKernel) {
  const std::string none = of({}), one = of({1}), two = of({1, 2});
  EXPECT_NE(none, one);
  EXPECT_NE(one, two);
  EXPECT_NE(of({2}), one);
}

TEST_F(Fingerprint, CoversTheBlobsThatWereReadOrStored) {
  const std::string none = of({1});
  const auto with = [&](const std::string& content, const std::string& compatibility = "v1") {
    Service service(options());
    small(service, "s");
    service.open("s").get(1);
    const Blobs blobs = service.blobs("triton", compatibility);
    if (blobs.get("k") != content) blobs.put("k", content);
    blobs.get("not there");
    return service.fingerprint();
  };
  const std::string stored = with("one");
  EXPECT_NE(stored, none);
  EXPECT_EQ(with("one"), stored) << "read from the store, not put";
  EXPECT_NE(with("two"), stored);
  EXPECT_NE(with("one", "v2"), stored);
  EXPECT_EQ(of({1}), none) << "blobs that nobody used";
}

/// Other compilers write the time of a compile into what they store.
TEST_F(Fingerprint, HasTheIdentityOfABlobInPlaceOfItsBytes) {
  const auto with = [&](const std::string& content, const std::string& identity, bool reads = false) {
    Service service(options());
    const Blobs blobs = service.blobs("inductor", "v1");
    blobs.identify("k", "of a blob that nobody has used");
    blobs.put("k", content);
    if (!identity.empty()) blobs.identify("k", identity);
    if (reads) blobs.get("k");
    return service.fingerprint();
  };
  const std::string one = with("code, 5 ms", "code");
  EXPECT_EQ(with("code, 7 ms", "code"), one);
  EXPECT_NE(with("code, 7 ms", "other code"), one);
  EXPECT_NE(with("code, 7 ms", ""), one);
  EXPECT_EQ(with("code, 7 ms", "code", true), with("code, 7 ms", "")) << "the next use brings the bytes back";
}

TEST_F(Fingerprint, IsDescribedBySpaceAndKey) {
  Service service(options());
  small(service, "s");
  service.open("s").get(1);
  service.blobs("triton", "v1").put("k", "one");
  const auto all = nlohmann::json::parse(service.describe_fingerprint());
  EXPECT_EQ(all["fingerprint"], service.fingerprint());
  ASSERT_EQ(all["spaces"].size(), 2u) << all;
  EXPECT_EQ(all["spaces"][0]["space"], "kernels");
  EXPECT_EQ(all["spaces"][0]["items"].begin().key().find("s N=1"), 0u) << all;
  EXPECT_EQ(all["spaces"][1]["space"], "triton");
  EXPECT_EQ(all["spaces"][1]["items"]["k\nv1"][0].get<std::string>().size(), 32u) << all;
}

TEST_F(Fingerprint, IsOfWhatIsLoadedNow) {
  Service service(options());
  small(service, "s");
  const std::string none = service.fingerprint();
  Scope scope = service.scope();
  service.open("s", Device::none()).compile(1);
  EXPECT_EQ(service.fingerprint(), none) << "an image is no kernel";
  scope.open("s").get(1);
  const std::string one = service.fingerprint();
  EXPECT_NE(one, none);
  service.open("s").get(1);
  EXPECT_EQ(service.fingerprint(), one) << "the same kernel in another scope";
  scope.release();
  EXPECT_EQ(service.fingerprint(), one);
}

TEST_F(Fingerprint, DiffersByATunedChoiceAndNotByHowItWasSaid) {
  const auto of_threads = [&](const Value& threads) {
    Service service(options());
    service.open("rms_norm").get({{"T", Dtype::bf16}, {"H", 4096}, {"THREADS", threads}});
    return service.fingerprint();
  };
  const std::string by_default = of_threads(Value());
  EXPECT_EQ(of_threads(Value()), by_default);
  EXPECT_NE(of_threads(128), of_threads(256));
  EXPECT_EQ(of_threads("128"), of_threads(128));
}

TEST_F(Fingerprint, DiffersByTheArgumentsOfTheTemplateAndItsSource) {
  const auto of_body = [&](const std::string& body) {
    Service service(options());
    small(service, "s", "", body);
    service.open("s").get(1);
    return service.fingerprint();
  };
  EXPECT_NE(of_body("out[n] = N;"), of_body("out[n] = N + 1;"));
}

TEST_F(Fingerprint, IsTheSameOnAnotherDevice) {
  const std::string first = of({1, 2});
  use(1);
  EXPECT_EQ(of({1, 2}), first);
}

TEST_F(Fingerprint, DiffersByTheImageOfAnotherToolchain) {
  const std::string own = of({1});
  // A rank without a compiler gets another toolchain's image of the same specialisation.
  Key key;
  {
    Service service(options());
    small(service, "s");
    key = *Key::from_hex(service.open("s").get(1).info().key);
  }
  {
    const auto built = cache::Store::open({.directory = tree_.at("cache")});
    auto record = *built->peek(key, base::Deadline::never());
    compile::Facts facts = compile::decode_facts(record.facts);
    facts.compiler_version = "99.0";
    record.facts = compile::encode(facts);
    record.image += "another compiler's bytes";
    record.key.toolchain.bytes[0] ^= 1;
    const auto shared = cache::Store::open({.directory = tree_.at("shared")});
    ASSERT_EQ(shared->put(record).put, cache::Put::stored);
  }
  Options slim = options();
  slim.cache_dir = tree_.at("shared");
  slim.cuda_home = tree_.at("empty");
  std::filesystem::create_directories(slim.cuda_home);
  const std::string theirs = of({1}, slim);
  EXPECT_NE(theirs, own);
  EXPECT_EQ(of({1}, slim), theirs);
}

}  // namespace
}  // namespace kiln::testing
