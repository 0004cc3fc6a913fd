//! Block exports over a Volume trait: NBD.
