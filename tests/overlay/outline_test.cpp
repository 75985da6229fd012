// Which declarations a reader without a compiler finds in a text, and what it says about them.
#include "overlay/outline.hpp"

#include <gtest/gtest.h>

#include "base/text.hpp"
#include "overlay/macros.hpp"

namespace kiln::source {
namespace {

using Lines = std::vector<std::string>;

Macros macros_in(const std::vector<Token>& tokens) {
  Macros macros;
  macros.add(tokens);
  return macros;
}

/// One line for each declaration: "function+ f @ outer::inner". A plus stands for a body, "@" precedes a scope
/// that is not empty, and "in" precedes the names of the class of a member function.
Lines outline(std::string_view text) {
  const std::vector<Token> tokens = tokens_of(text);
  const std::vector<Declaration> all = outline_of(text, tokens, macros_in(tokens));
  const char* const kinds[] = {"fixed", "function", "named", "check", "call", "instantiation"};
  Lines out;
  for (const Declaration& d : all) {
    std::string line = kinds[static_cast<int>(d.kind)];
    if (d.defined()) line += '+';
    for (const std::string_view name : d.names) line += ' ' + std::string(name);
    if (!d.scope.empty()) line += " @ " + d.scope;
    if (d.parent != kNoDeclaration) {
      line += " in";
      for (const std::string_view name : all.at(d.parent).names) line += ' ' + std::string(name);
    }
    out.push_back(line);
  }
  return out;
}

/// The text of each declaration.
Lines pieces(std::string_view text) {
  const std::vector<Token> tokens = tokens_of(text);
  Lines out;
  for (const Declaration& d : outline_of(text, tokens, macros_in(tokens)))
    out.emplace_back(text.substr(d.begin, d.end - d.begin));
  return out;
}

/// The only declaration of a text; fails the test when there are others.
Declaration only(std::string_view text) {
  const std::vector<Token> tokens = tokens_of(text);
  std::vector<Declaration> all = outline_of(text, tokens, Macros());
  EXPECT_EQ(all.size(), 1u) << text;
  return all.empty() ? Declaration{} : all[0];
}

bool has_word(const std::vector<std::string_view>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

TEST(Outline, FunctionsWithAndWithoutABody) {
  EXPECT_EQ(outline("void f(int a);"), (Lines{"function f"}));
  EXPECT_EQ(outline("static inline float* f(int a) { if (a) { return 0; } return g(a); }"),
            (Lines{"function+ f"}));
  EXPECT_EQ(outline("auto f(int a) noexcept(true) -> decltype(g(a)) { return g(a); }"),
            (Lines{"function+ f"}));
  EXPECT_EQ(outline("unsigned long long f() { return 1; } int g();"), (Lines{"function+ f", "function g"}));
  EXPECT_EQ(outline("void f(void (*callback)(int), int (&a)[4]) {}"), (Lines{"function+ f"}));
  EXPECT_EQ(outline("int main() try { } catch (...) { }"), (Lines{"function+ main"}));
  EXPECT_EQ(outline("void f() = delete;"), (Lines{"function f"}));
}

TEST(Outline, WhatIsWrittenAroundAFunctionIsNotItsName) {
  EXPECT_EQ(outline("__global__ void __launch_bounds__(128, 2) f(int* a) { a[0] = 1; }"),
            (Lines{"function+ f"}));
  EXPECT_EQ(outline("__launch_bounds__(128) __global__ void f(int* a) {}"), (Lines{"function+ f"}));
  EXPECT_EQ(outline("__global__ void LAUNCH_BOUNDS(128) f(int* a) {}"), (Lines{"function+ f"}));
  EXPECT_EQ(outline("[[nodiscard]] __device__ int f() { return 1; }"), (Lines{"function+ f"}));
  EXPECT_EQ(outline("__attribute__((noinline)) alignas(8) int f();"), (Lines{"function f"}));
  EXPECT_EQ(outline("extern \"C\" __global__ void f(int* a) {}"), (Lines{"function+ f"}));
  EXPECT_EQ(outline("struct Pair f(struct Pair a) { return a; }"), (Lines{"function+ f"}));
  EXPECT_TRUE(has_word(only("__global__ void LAUNCH_BOUNDS(128) f(int* a) {}").specifiers, "LAUNCH_BOUNDS"));
}

TEST(Outline, SpecifiersAreTheWordsOutsideOfParentheses) {
  const Declaration d =
      only("template <class T> __device__ constexpr std::pair<T, int> f(Other a) { return more(); }");
  for (const char* word : {"__device__", "constexpr", "std", "pair"})
    EXPECT_TRUE(has_word(d.specifiers, word)) << word;
  for (const char* word : {"Other", "return", "more", "template"})
    EXPECT_FALSE(has_word(d.specifiers, word)) << word;
  for (const char* word : {"Other", "more", "T"}) EXPECT_TRUE(has_word(d.words, word)) << word;
}

TEST(Outline, TemplatesAndSpecialisations) {
  EXPECT_EQ(outline("template <class T, int N = (1 > 2), template <class> class U = V> void f(T a) {}"),
            (Lines{"function+ f"}));
  EXPECT_EQ(outline("template <> void f<int>(int a) {}"), (Lines{"function+ f"}));
  EXPECT_EQ(outline("template <class T> template <class U> void A<T>::f(U a) {}"), (Lines{"function+ f"}));
  EXPECT_EQ(outline("template <class T, class = std::enable_if_t<(sizeof(T) > 4)>> struct A { T a; };"),
            (Lines{"named A"}));
  EXPECT_EQ(outline("template <class T> struct A<T*> : A<T> {}; template <> struct A<int> {};"),
            (Lines{"named A", "named A"}));
  EXPECT_EQ(outline("template <class T> constexpr int v = 1; template <> constexpr int v<int> = 2;"),
            (Lines{"named v", "named v"}));
  EXPECT_EQ(outline("template <class T> using P = T*;"), (Lines{"named P"}));
  EXPECT_EQ(outline("template <class T> requires(sizeof(T) == 4) __global__ void f(T* a) {}"),
            (Lines{"function+ f"}));
  EXPECT_EQ(outline("template <class T> requires C<T> void f(T a) requires D<T> {}"), (Lines{"function+ f"}));
  EXPECT_EQ(outline("template <class T> requires requires(T a) { a.x; } void f(T a) {}"),
            (Lines{"function+ f"}));
}

TEST(Outline, AShiftOpensNoTemplateArguments) {
  EXPECT_EQ(outline("template <int N, int M = N << 3, int L = 1 << N> void f(A<N> a) { a << 1; }\nint b;\n"),
            (Lines{"function+ f", "named b"}));
}

TEST(Outline, OperatorsHaveTheNameOperator) {
  EXPECT_EQ(outline("A operator+(A a, A b) { return a; }"), (Lines{"function+ operator"}));
  EXPECT_EQ(outline("bool operator<(A a, A b);"), (Lines{"function operator"}));
  EXPECT_EQ(outline("A operator\"\"_a(unsigned long long a) { return {}; }"), (Lines{"function+ operator"}));
  EXPECT_EQ(outline("template <class T> T A::operator()(T a) const { return a; }"),
            (Lines{"function+ operator"}));
  EXPECT_EQ(outline("A::operator bool() const { return true; }"), (Lines{"function+ operator"}));
}

TEST(Outline, ConstructorsEndAfterTheirInitialisers) {
  EXPECT_EQ(outline("A::A(int a) : x_(a), y_{a, 1}, z_{} { g(); } int next;"),
            (Lines{"function+ A", "named next"}));
  EXPECT_EQ(outline("A::A() : x_{1}\n#ifdef B\n, y_{2}\n#endif\n{ } int next;"),
            (Lines{"function+ A", "named next"}));
  EXPECT_EQ(outline("A::~A() { }\nint next;"), (Lines{"function+ ~", "named next"}));
  EXPECT_EQ(outline("A::A() = default; int next;"), (Lines{"function A", "named next"}));
}

TEST(Outline, TypesWithAttributesBasesAndVariables) {
  EXPECT_EQ(outline("struct A;"), (Lines{"named A"}));
  EXPECT_EQ(outline("struct A { int a; };"), (Lines{"named A"}));
  EXPECT_EQ(outline("struct __align__(16) A { int a; };"), (Lines{"named A"}));
  EXPECT_EQ(outline("struct alignas(16) A final : public B<int>, C { int a; };"), (Lines{"named A"}));
  EXPECT_EQ(outline("class EXPORTED A { int a; };"), (Lines{"named A"}));
  EXPECT_EQ(outline("struct ALIGNED(16) A { int a; };"), (Lines{"named A"}));
  EXPECT_EQ(outline("union A { int a; float b; };"), (Lines{"named A"}));
  EXPECT_EQ(outline("struct Outer::Inner { int a; };"), (Lines{"named Inner"}));
  EXPECT_EQ(outline("struct A { int a; } b, *c;"), (Lines{"named A b c"}));
  EXPECT_EQ(outline("typedef struct { int a; } A;"), (Lines{"named A"}));
}

TEST(Outline, EnumsDeclareTheirEnumerators) {
  EXPECT_EQ(outline("enum A { b, c = 2 };"), (Lines{"named b c A"}));
  EXPECT_EQ(outline("enum class A : unsigned char { b };"), (Lines{"named b A"}));
  EXPECT_EQ(outline("enum class A;"), (Lines{"named A"}));
  EXPECT_EQ(outline("enum { b = f(1) };"), (Lines{"named b f"}));
}

TEST(Outline, VariablesHaveTheNamesOfAllTheirDeclarators) {
  EXPECT_EQ(outline("int a;"), (Lines{"named a"}));
  EXPECT_EQ(outline("int a = 1, *b, c[4], d{5};"), (Lines{"named a b c d"}));
  EXPECT_EQ(outline("__constant__ float a[2] = {1.0f, f(2)};"), (Lines{"named a"}));
  EXPECT_EQ(outline("extern __shared__ char a[];"), (Lines{"named a"}));
  EXPECT_EQ(outline("std::map<int, std::vector<float>> a;"), (Lines{"named a"}));
  EXPECT_EQ(outline("constexpr bool a = 1 < 2, b = true;"), (Lines{"named a b"}));
  EXPECT_EQ(outline("const auto a = [](int x) { return x; };"), (Lines{"named a"}));
  EXPECT_EQ(outline("__device__ auto a = [] __device__(int x) { int y = x; return y; };"),
            (Lines{"named a"}));
}

TEST(Outline, AnAttributeBeforeAVariableIsNoFunction) {
  EXPECT_EQ(outline("ALIGNED(16) __device__ float a[4];"), (Lines{"named a"}));
  EXPECT_EQ(outline("__device__ ALIGNED(16) float a[4] = {1};"), (Lines{"named a"}));
  EXPECT_EQ(outline("alignas(16) __device__ float a;"), (Lines{"named a"}));
}

TEST(Outline, PointersToFunctionsAreVariables) {
  EXPECT_EQ(outline("int (*a)(float) = nullptr;"), (Lines{"named a"}));
  EXPECT_EQ(outline("__device__ Result (*const a)(Input) = f;"), (Lines{"named a"}));
  EXPECT_EQ(outline("__device__ Result (*a[4])(Input) = {f, g};"), (Lines{"named a"}));
  EXPECT_EQ(outline("Result (&a)[4] = b;"), (Lines{"named a"}));
  EXPECT_EQ(outline("Result (A::*a)(Input) const;"), (Lines{"named a"}));
  EXPECT_EQ(outline("Result (*f(int a))(Input) { return g; }"), (Lines{"function+ f"}));
}

TEST(Outline, AliasesAndUsings) {
  EXPECT_EQ(outline("using A = std::array<int, 4>;"), (Lines{"named A"}));
  EXPECT_EQ(outline("using F = Result (*)(Input);"), (Lines{"named F"}));
  EXPECT_EQ(outline("using std::min;"), (Lines{"named min"}));
  EXPECT_EQ(outline("typedef unsigned int A;"), (Lines{"named A"}));
  EXPECT_EQ(outline("typedef Result (*F)(Input);"), (Lines{"named F"}));
  EXPECT_EQ(outline("typedef Result F(Input);"), (Lines{"named F"}));
  EXPECT_EQ(outline("typedef int A[4];"), (Lines{"named A"}));
  EXPECT_EQ(outline("using namespace std;"), (Lines{"fixed"}));
  EXPECT_EQ(outline("namespace a = b::c;"), (Lines{"fixed"}));
}

TEST(Outline, ConceptsAndChecks) {
  EXPECT_EQ(outline("template <class T> concept C = sizeof(T) == 4;"), (Lines{"named C"}));
  EXPECT_EQ(
      outline("template <class T> concept C = requires(T a) { a.f(); { a.g() } -> Same<int>; };\nint b;"),
      (Lines{"named C", "named b"}));
  EXPECT_EQ(outline("static_assert(sizeof(A) == 4, \"text\");"), (Lines{"check"}));
  EXPECT_EQ(outline("_Static_assert(sizeof(A) == 4, \"text\");"), (Lines{"check"}));
}

TEST(Outline, MacroCallsOnTheirOwnLine) {
  EXPECT_EQ(outline("MAKE(float);"), (Lines{"call"}));
  EXPECT_EQ(outline("MAKE(float)\nvoid f() {}"), (Lines{"call", "function+ f"}));
  EXPECT_EQ(outline("MAKE(float)\nMAKE(int)\n#undef MAKE\n"), (Lines{"call", "call"}));
  EXPECT_EQ(outline("make(float)"), (Lines{"call"}));
  EXPECT_EQ(outline("MODULE(name, m) {\n  m.def(1);\n}\nint b;"), (Lines{"function+ MODULE", "named b"}));
}

TEST(Outline, NamespacesGiveScopes) {
  EXPECT_EQ(outline("namespace a { int x; namespace b { int y; } int z; } int w;"),
            (Lines{"named x @ a", "named y @ a::b", "named z @ a", "named w"}));
  EXPECT_EQ(outline("namespace a::b { int x; }"), (Lines{"named x @ a::b"}));
  EXPECT_EQ(outline("namespace { int x; } namespace a { namespace { int y; } }"),
            (Lines{"named x", "named y @ a"}));
  EXPECT_EQ(outline("inline namespace v1 { int x; } namespace a::inline v2 { int y; }"),
            (Lines{"named x", "named y @ a"}));
  EXPECT_EQ(outline("namespace [[deprecated]] a { int x; } namespace EXPORTED b { int y; }"),
            (Lines{"named x @ a", "named y @ b"}));
  EXPECT_EQ(outline("extern \"C\" { int x; void f(); } extern \"C\" int y;"),
            (Lines{"named x", "function f", "named y"}));
  EXPECT_EQ(outline("extern \"C++\" {\nnamespace a { int x; }\n}"), (Lines{"named x @ a"}));
}

TEST(Outline, MacrosThatOpenNamespacesAreNoDeclarations) {
  EXPECT_EQ(outline("#define OPEN namespace a {\n#define SHUT }\nOPEN\nint x;\nSHUT\nint y;"),
            (Lines{"named x", "named y"}));
  EXPECT_EQ(outline("CUTE_NAMESPACE_BEGIN\nint x;\nCUTE_NAMESPACE_END\nint y;"),
            (Lines{"named x", "named y"}));
  EXPECT_EQ(outline("#define OPEN(x) namespace x {\n#define SHUT(x) }\nOPEN(a)\nint x;\nSHUT(a)\nint y;"),
            (Lines{"named x", "named y"}));
  EXPECT_EQ(outline("BEGIN_EXTERN_DECLS\nvoid f();\nEND_EXTERN_DECLS\n"), (Lines{"function f"}));
}

TEST(Outline, ConditionalsInsideADeclarationBelongToIt) {
  EXPECT_EQ(outline("void f() {\n#if A\n  if (a) {\n#else\n  {\n#endif\n  }\n}\nint x;"),
            (Lines{"function+ f", "named x"}));
  EXPECT_EQ(outline("struct A {\n#if B\n  int a;\n#else\n  float a;\n#endif\n};"), (Lines{"named A"}));
  EXPECT_EQ(outline("int a[] = {\n#include \"table.inc\"\n};"), (Lines{"named a"}));
}

TEST(Outline, AConditionalThatCutsThroughAHeadKeepsAllOfIt) {
  const std::string head = "#ifdef A\nvoid f(int a) {\n#else\nvoid f(float a) {\n#endif\n  g(a);\n}\nint x;";
  EXPECT_EQ(outline(head), (Lines{"fixed", "named x"}));
  EXPECT_EQ(pieces(head)[0], head.substr(9, head.size() - 16));
  EXPECT_EQ(
      outline("#ifdef A\ntemplate <int N>\n#else\ntemplate <int N, int M>\n#endif\nvoid f() {}\nint x;"),
      (Lines{"fixed", "named x"}));
  EXPECT_EQ(outline("#ifdef A\nnamespace a {\n#endif\nint x;\n#ifdef A\n}\n#endif\nint y;"),
            (Lines{"named x @ a", "named y"}));
}

TEST(Outline, ExplicitInstantiations) {
  EXPECT_EQ(outline("template void f<int>(int*);"), (Lines{"instantiation"}));
  EXPECT_EQ(outline("template struct A<int>;"), (Lines{"instantiation"}));
  EXPECT_EQ(outline("extern template class A<int>;"), (Lines{"instantiation"}));
  EXPECT_EQ(outline("template __global__ void f<128>(int*);\nint x;"), (Lines{"instantiation", "named x"}));
}

TEST(Outline, MemberFunctionsOfClasses) {
  EXPECT_EQ(outline("struct A { int a; int f() const { return a; } template <class T> void g(T b); };"),
            (Lines{"named A", "function+ f in A"}));
  EXPECT_EQ(outline("class A {\n public:\n  void f() {}\n private:\n  static void g();\n};"),
            (Lines{"named A", "function+ f in A"}))
      << "a function without a body is part of its class";
  EXPECT_EQ(outline("struct A { __host__ void f(); };"), (Lines{"named A", "function+ f in A"}));
  EXPECT_EQ(outline("struct A { struct B { void f() {} }; void g() {} };"),
            (Lines{"named A", "function+ f in A", "function+ g in A"}));
}

TEST(Outline, ConstructorsOperatorsVirtualsAndFriendsAreMembersWhenTheyHaveABody) {
  for (const std::string member : {"A() = default;", "A(const A&) = delete;", "A(int a);", "~A() {}",
                                   "__device__ ~A() {}", "virtual ~A() {}", "void f() override;"})
    EXPECT_EQ(outline("struct A { " + member + " int b; };"), (Lines{"named A"})) << member;
  for (const std::string member : {"A(int a) : a_(a) {}", "explicit A(float a) {}"})
    EXPECT_EQ(outline("struct A { " + member + " int b; };"), (Lines{"named A", "function+ A in A"}))
        << member;
  for (const std::string member :
       {"A& operator=(const A& a) { return *this; }", "operator int() const { return 1; }"})
    EXPECT_EQ(outline("struct A { " + member + " int b; };"), (Lines{"named A", "function+ operator in A"}))
        << member;
  for (const std::string member : {"virtual void f() {}", "void f() final {}", "friend void f(A a) {}"})
    EXPECT_EQ(outline("struct A { " + member + " int b; };"), (Lines{"named A", "function+ f in A"}))
        << member;
  EXPECT_EQ(outline("struct A { struct B { B() = default; __device__ B(int a) {} }; B b; };"),
            (Lines{"named A", "function+ B in A"}))
      << "a nested class has constructors, too";
  EXPECT_EQ(outline("struct CTA { CTA(int a)\n  : a_(a) {}\n  int a_; };"),
            (Lines{"named CTA", "function+ CTA in CTA"}));
}

/// A data member that is cut away changes the layout of its class without any error.
TEST(Outline, DataMembersArePartOfTheirClassHoweverTheyAreWritten) {
  for (const std::string member : {"Result (*f)(Input);",
                                   "Result (A::*f)(Input);",
                                   "Result (*f[2])(Input);",
                                   "ALIGNED(16) float a[4];",
                                   "alignas(16) float a[4];",
                                   "aligned(16) float a;",
                                   "float a[4] ALIGNED(16);",
                                   "float a ALIGNED(16);",
                                   "float a __aligned(16);",
                                   "ALIGNED(16) float a{1.0f};",
                                   "float a = f(1);",
                                   "Type a{f(1)};",
                                   "int a : f(3);",
                                   "std::function<Result(Input)> f;",
                                   "union { int a; float b; };",
                                   "struct { int a; } b;",
                                   "MEMBERS(float)",
                                   "MEMBERS(float);",
                                   "static constexpr int a = f(1);",
                                   "Type<f(1)> a;",
                                   "decltype(f(1)) a;"})
    EXPECT_EQ(outline("struct A { " + member + " int z; };"), (Lines{"named A"})) << member;
}

TEST(Outline, AClassHasTheWordsOfItsMembersButNotOfItsMemberFunctions) {
  const std::string text =
      "struct A : Base { Data a; A() : a(start()) {} void f(Input b) { g(b); } More c; };";
  const std::vector<Token> tokens = tokens_of(text);
  const std::vector<Declaration> all = outline_of(text, tokens, Macros());
  ASSERT_EQ(all.size(), 3u);
  for (const char* word : {"Base", "Data", "More"}) EXPECT_TRUE(has_word(all[0].words, word)) << word;
  for (const char* word : {"Input", "g", "start"}) EXPECT_FALSE(has_word(all[0].words, word)) << word;
  EXPECT_TRUE(has_word(all[1].words, "start"));
  for (const char* word : {"Input", "g"}) EXPECT_TRUE(has_word(all[2].words, word)) << word;
}

TEST(Outline, ADeclarationReachesFromItsFirstTokenToItsLast) {
  EXPECT_EQ(pieces("// a\nint a;  // b\n/* c */ template <int N> void f() { } ; struct B { int b; } ;"),
            (Lines{"int a;", "template <int N> void f() { }", "struct B { int b; } ;"}));
}

TEST(Outline, BracketsThatDoNotMatchEndNowhereOutsideOfTheText) {
  for (const std::string text :
       {"}", "int a; } } int b;", "void f() {", "void f(", "struct A { void f() {", "namespace a {",
        "template <", "template <class T", "operator", "(", ")", "a(", "[", "enum {", "=", "struct"})
    EXPECT_NO_FATAL_FAILURE(outline(text)) << text;
  EXPECT_EQ(outline("int a; } int b;"), (Lines{"named a", "named b"}));
  std::string deep;
  for (int i = 0; i < 2000; ++i) deep += "namespace a { struct B { ";
  outline(deep);
}

}  // namespace
}  // namespace kiln::source
