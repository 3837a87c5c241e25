//! Sets the condition that makes `crates/core` contain the modules of this package.

fn main() {
    println!("cargo::rustc-cfg=proof");
    // A feature of the core that this package does not have.
    println!("cargo::rustc-check-cfg=cfg(feature, values(\"serde\"))");
}
