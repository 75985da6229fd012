#include "toolchain/elf.hpp"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "kiln/error.hpp"
#include "tests/support/fake_driver/make_cubin.hpp"

namespace kiln::toolchain {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string sample() {
  return test::make_cubin({.sm = 90,
                           .elf_abi = 8,
                           .kernels = {test::make_kernel("alpha", {8, 4}), test::make_kernel("beta", {})}});
}

template <class Edit>
std::string edited(Edit&& edit) {
  std::string image = sample();
  Elf64_Ehdr header;
  std::memcpy(&header, image.data(), sizeof header);
  edit(image, header);
  std::memcpy(image.data(), &header, sizeof header);
  return image;
}

Elf64_Shdr section_header(const std::string& image, const Elf64_Ehdr& header, unsigned index) {
  Elf64_Shdr section;
  std::memcpy(&section, image.data() + header.e_shoff + index * sizeof section, sizeof section);
  return section;
}

void put_section_header(std::string& image, const Elf64_Ehdr& header, unsigned index,
                        const Elf64_Shdr& section) {
  std::memcpy(image.data() + header.e_shoff + index * sizeof section, &section, sizeof section);
}

TEST(Elf, ReadsSectionsInTheirOrderWithNames) {
  const std::string image = sample();
  const Elf elf(bytes_of(image));
  EXPECT_EQ(elf.machine(), EM_CUDA);
  EXPECT_EQ(elf.abi_version(), 8);
  EXPECT_EQ(elf.sections()[1].name, ".strtab");
  ASSERT_NE(elf.section(".nv.shared.alpha"), nullptr);
  EXPECT_EQ(elf.section(".nv.shared.alpha")->size, 1024u);
  EXPECT_TRUE(elf.section(".nv.shared.alpha")->bytes.empty());
  EXPECT_EQ(elf.section(".text.beta")->bytes.size(), 128u);
  EXPECT_EQ(elf.section(".absent"), nullptr);
}

TEST(Elf, RefusesWhatIsNoElf64) {
  for (const std::string& text : {std::string(),
                                  std::string("\x7f"
                                              "ELF"),
                                  std::string(200, 'x'), std::string(64, '\0')})
    EXPECT_THROW(Elf{bytes_of(text)}, Error);
  EXPECT_THROW(Elf{bytes_of(edited([](auto&, auto& h) { h.e_ident[EI_CLASS] = ELFCLASS32; }))}, Error);
  EXPECT_THROW(Elf{bytes_of(edited([](auto&, auto& h) { h.e_ident[EI_DATA] = ELFDATA2MSB; }))}, Error);
}

TEST(Elf, RefusesTablesOutOfBounds) {
  EXPECT_THROW(Elf{bytes_of(edited([](auto&, auto& h) { h.e_shoff = ~0ull; }))}, Error);
  EXPECT_THROW(Elf{bytes_of(edited([](auto&, auto& h) { h.e_shoff = ~0ull - 63; }))}, Error);
  EXPECT_THROW(Elf{bytes_of(edited([](auto&, auto& h) { h.e_shnum = 0xfff0; }))}, Error);
  EXPECT_THROW(Elf{bytes_of(edited([](auto&, auto& h) { h.e_shentsize = 1; }))}, Error);
  EXPECT_THROW(Elf{bytes_of(edited([](auto&, auto& h) { h.e_shstrndx = h.e_shnum; }))}, Error);
  EXPECT_THROW(Elf{bytes_of(edited([](std::string& image, auto& h) {  // section 0 has the count: 2^60
                 auto first = section_header(image, h, 0);
                 first.sh_size = 1ull << 60;
                 h.e_shnum = 0;
                 put_section_header(image, h, 0, first);
               }))},
               Error);
}

TEST(Elf, TakesTheSectionCountFromSection0WhenTheHeaderHasNone) {
  const std::string image = edited([](std::string& bytes, auto& h) {
    auto first = section_header(bytes, h, 0);
    first.sh_size = h.e_shnum;
    first.sh_link = h.e_shstrndx;
    h.e_shnum = 0;
    h.e_shstrndx = SHN_XINDEX;
    put_section_header(bytes, h, 0, first);
  });
  EXPECT_EQ(Elf(bytes_of(image)).sections().size(), Elf(bytes_of(sample())).sections().size());
}

TEST(Elf, RefusesASectionOrANameOutOfBounds) {
  const auto with_section = [](auto&& change) {
    return edited([&](std::string& image, auto& h) {
      auto section = section_header(image, h, 3);
      change(section);
      put_section_header(image, h, 3, section);
    });
  };
  EXPECT_THROW(Elf{bytes_of(with_section([](auto& s) { s.sh_offset = ~0ull - 8; }))}, Error);
  EXPECT_THROW(Elf{bytes_of(with_section([](auto& s) { s.sh_size = ~0ull; }))}, Error);
  EXPECT_THROW(Elf{bytes_of(with_section([](auto& s) { s.sh_name = 1u << 20; }))}, Error);
  EXPECT_NO_THROW(
      Elf{bytes_of(with_section([](auto& s) { s.sh_type = SHT_NOBITS, s.sh_size = 1ull << 50; }))});
}

TEST(Elf, SurvivesTruncationAtEveryLength) {
  const std::string image = sample();
  for (std::size_t size = 0; size < image.size(); ++size) {
    const std::vector<char> exact(image.begin(),
                                  image.begin() + static_cast<std::ptrdiff_t>(size));  // asan checks the end
    EXPECT_THROW(read_cubin(std::as_bytes(std::span(exact))), Error) << size;
  }
}

TEST(Elf, SurvivesFlippedBytes) {
  const std::string image = sample();
  std::mt19937 random(7);
  const auto attempt = [](const std::string& damaged) {
    const std::vector<char> exact(damaged.begin(), damaged.end());
    try {
      read_cubin(std::as_bytes(std::span(exact)));
    } catch (const Error&) {
    }
  };
  for (std::size_t i = 0; i < image.size(); ++i) {
    for (const unsigned char flip : {0x01, 0x80, 0xff}) {
      std::string damaged = image;
      damaged[i] = static_cast<char>(damaged[i] ^ flip);
      attempt(damaged);
    }
  }
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = image;
    for (unsigned n = random() % 8 + 1; n > 0; --n)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    attempt(damaged);
  }
}

}  // namespace
}  // namespace kiln::toolchain
