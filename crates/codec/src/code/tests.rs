use super::*;

#[test]
fn the_first_parity_is_the_xor() {
    let code = Code::new(3, 2).unwrap();
    let (mut p, mut q) = ([0u8; 1], [0u8; 1]);
    code.encode(&[&[1], &[2], &[4]], &mut [&mut p, &mut q]);
    assert_eq!(p, [7]);
}
