//! Compiles the source of randomness and links it in front of libc's.

fn main() {
    println!("cargo::rerun-if-changed=src/entropy.c");
    let objects = cc::Build::new()
        .file("src/entropy.c")
        .opt_level(2)
        .compile_intermediates();
    for object in objects {
        // Objects, not a library: a symbol that libc has too would never be looked for in one.
        println!("cargo::rustc-link-arg={}", object.display());
    }
}
