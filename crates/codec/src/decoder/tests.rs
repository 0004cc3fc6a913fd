use super::*;

/// Every pattern of losses of every code of up to 9 columns gives back exactly what was stored.
#[test]
fn every_loss_of_small_codes_comes_back() {
    for k in 1..=8u8 {
        for m in 0..=9 - k {
            let code = Code::new(k, m).unwrap();
            let mut columns: Vec<Vec<u8>> = (0..k + m)
                .map(|c| (0..7).map(|i| c.wrapping_mul(37).wrapping_add(i).wrapping_mul(91)).collect())
                .collect();
            let (data, parity) = columns.split_at_mut(usize::from(k));
            let data: Vec<&[u8]> = data.iter().map(|c| &c[..]).collect();
            code.encode(&data, &mut parity.iter_mut().map(|c| &mut c[..]).collect::<Vec<_>>());
            for bits in 0..1u32 << (k + m) {
                let present = ColumnSet::from_bits(bits);
                if present.len() != k {
                    continue;
                }
                let lost: Vec<u8> = ColumnSet::first(k + m).difference(present).iter().collect();
                let decoder = code.decoder(present, &lost).unwrap();
                let inputs: Vec<&[u8]> =
                    decoder.sources().iter().map(|&c| &columns[usize::from(c)][..]).collect();
                let mut outputs = vec![vec![0u8; 7]; lost.len()];
                decoder.apply(&inputs, &mut outputs.iter_mut().map(|o| &mut o[..]).collect::<Vec<_>>());
                for (output, &column) in outputs.iter().zip(&lost) {
                    assert_eq!(*output, columns[usize::from(column)], "{decoder:?}");
                }
            }
        }
    }
}
