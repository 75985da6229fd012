// The program that tests take their precompiled header from; it does nothing.
int main() {}
