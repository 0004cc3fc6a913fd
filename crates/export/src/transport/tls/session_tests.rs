//! Sessions between two ends in memory.

use fuzz::within;

use super::*;

/// Bytes of the data of a send.
const DATA: usize = 7 * RECORD_MAX;

fn key(hash: TlsKeyHash) -> TlsKey {
    let length = if hash == TlsKeyHash::Sha256 { 32 } else { 48 };
    TlsKey { identity: b"a name".to_vec(), secret: vec![1; length], hash }
}

/// Passes the encrypted bytes of one end to the other.
fn pass(from: &mut TlsSession, to: &mut TlsSession) {
    if let Some(output) = from.take_output() {
        let len = output.len();
        to.feed(output, len);
    }
}

/// Opens a session, and transfers data in both directions.
fn transfer(key: &TlsKey, data: &[u8], into: &Span) {
    let (mut client, mut server) = (TlsSession::client(key).unwrap(), TlsSession::server(key).unwrap());
    let mut done = [false; 2];
    while done != [true; 2] {
        done[0] = client.negotiate().unwrap();
        pass(&mut client, &mut server);
        done[1] = server.negotiate().unwrap();
        pass(&mut server, &mut client);
    }
    for _ in 0..2 {
        server.make_output(data.len());
        data.chunks(RECORD_MAX).for_each(|record| server.encrypt(record).unwrap());
        pass(&mut server, &mut client);
        assert_eq!(client.decrypt(into), Ok(Decrypted::Bytes(data.len())));
        std::mem::swap(&mut client, &mut server);
    }
}

#[test]
fn the_memory_of_a_session_is_limited() {
    let (data, into) = (vec![7; DATA], Buffer::new(DATA).span());
    for hash in [TlsKeyHash::Sha256, TlsKeyHash::Sha384] {
        let key = key(hash);
        // Allocates the memory of the library that sessions share, and buffers, which are recycled.
        transfer(&key, &data, &into);
        within(2 * TlsSession::BYTES, || transfer(&key, &data, &into));
    }
}

#[test]
fn decrypted_bytes_count_as_input() {
    let key = key(TlsKeyHash::Sha256);
    let (mut client, mut server) = (TlsSession::client(&key).unwrap(), TlsSession::server(&key).unwrap());
    while !server.negotiate().unwrap() {
        pass(&mut server, &mut client);
        let _ = client.negotiate().unwrap();
        pass(&mut client, &mut server);
    }
    client.make_output(100);
    client.encrypt(&[3; 100]).unwrap();
    pass(&mut client, &mut server);
    let into = Buffer::new(60).span();
    assert!(server.has_input());
    assert_eq!(server.decrypt(&into), Ok(Decrypted::Bytes(60)));
    assert!(server.has_input(), "40 bytes are decrypted");
    assert_eq!(server.decrypt(&into), Ok(Decrypted::Bytes(40)));
    assert!(!server.has_input());
    assert_eq!(server.decrypt(&into), Ok(Decrypted::NeedsInput));
}
