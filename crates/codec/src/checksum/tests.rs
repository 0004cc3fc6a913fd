#[test]
fn vectors_of_rfc_3720() {
    let ascending: Vec<u8> = (0..32).collect();
    let descending: Vec<u8> = (0..32).rev().collect();
    for implementation in crate::implementations() {
        let crc = |data: &[u8]| implementation.crc32c_append(0, data);
        assert_eq!(crc(b""), 0);
        assert_eq!(crc(b"123456789"), 0xE306_9283);
        assert_eq!(crc(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc(&[0xFF; 32]), 0x62A8_AB43);
        assert_eq!(crc(&ascending), 0x46DD_794E);
        assert_eq!(crc(&descending), 0x113F_DB5C);
    }
}
