//! Links ISA-L: the system's shared library (Debian: libisal-dev), or libisal.a in `ISAL_DIR`.

fn main() {
    println!("cargo:rerun-if-env-changed=ISAL_DIR");
    match std::env::var("ISAL_DIR") {
        Ok(directory) => {
            println!("cargo:rustc-link-search=native={directory}");
            println!("cargo:rustc-link-lib=static=isal");
        }
        Err(_) => println!("cargo:rustc-link-lib=isal"),
    }
}
