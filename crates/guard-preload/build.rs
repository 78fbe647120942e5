//! The library is initialised before all others, which may keep what they find: libstdc++ keeps `stdout`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
}
