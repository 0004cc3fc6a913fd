//! TLS by the program `openssl`.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};

use crate::tls_identity::TlsIdentity;

/// A local address whose connections `openssl s_client` carries to a target within TLS.
pub(crate) fn openssl_tunnel(target: SocketAddr, identity: &TlsIdentity) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let identity = identity.clone();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            carry(socket.unwrap(), target, &identity);
        }
    });
    address
}

/// Copies until an end. `std::io::copy` lets the kernel copy, which waits for more than has
/// arrived.
fn pass_on(from: &mut impl Read, to: &mut impl Write) {
    let mut part = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut part) {
        if to.write_all(&part[..count]).is_err() {
            break;
        }
    }
}

fn carry(socket: TcpStream, target: SocketAddr, identity: &TlsIdentity) {
    let key: String = identity.key.iter().map(|byte| format!("{byte:02x}")).collect();
    let target = target.to_string();
    let mut child = Command::new("openssl")
        .args(["s_client", "-connect", &target, "-tls1_3", "-quiet", "-nocommands"])
        .args(["-psk_identity", &identity.text])
        .args(["-psk", &key, "-ciphersuites", "TLS_AES_128_GCM_SHA256"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut reader, mut writer) = (socket.try_clone().unwrap(), socket);
    std::thread::spawn(move || {
        pass_on(&mut reader, &mut to);
        drop(to);
        // It ends with its connection otherwise.
        let _ = child.kill();
        let _ = child.wait();
    });
    std::thread::spawn(move || {
        pass_on(&mut from, &mut writer);
        let _ = writer.shutdown(Shutdown::Both);
    });
}
