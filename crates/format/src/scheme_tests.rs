//! Schemes: limits, parsing, display and arithmetic.

use super::*;

fn scheme(data: u8, parity: u8) -> Scheme {
    Scheme::new(data, parity).unwrap()
}

#[test]
fn schemes_have_data_and_up_to_32_columns() {
    for (data, parity) in [(1, 0), (1, 31), (32, 0), (31, 1)] {
        let scheme = scheme(data, parity);
        assert_eq!((scheme.data(), scheme.parity(), scheme.width()), (data, parity, data + parity));
    }
    assert_eq!(Scheme::new(0, 1), Err(SchemeError::NoData));
    for (data, parity, width) in [(32, 1, 33), (1, 32, 33), (255, 255, 510)] {
        assert_eq!(Scheme::new(data, parity), Err(SchemeError::TooWide(width)));
    }
}

#[test]
fn schemes_parse_from_their_display_form() {
    for text in ["1+0", "4+1", "8+2", "1+31"] {
        let scheme: Scheme = text.parse().unwrap();
        assert_eq!((scheme.to_string(), format!("{scheme:?}")), (text.into(), format!("Scheme({text})")));
    }
    assert_eq!(" 4 + 1 ".parse(), Ok(scheme(4, 1)));
    for text in ["", "4", "4+", "+1", "4-1", "4+1+1", "a+b", "-4+1", "4.0+1"] {
        assert_eq!(text.parse::<Scheme>(), Err(SchemeError::Syntax(text.into())), "{text}");
    }
    assert_eq!("0+1".parse::<Scheme>(), Err(SchemeError::NoData));
    for (text, width) in [("32+1", 33), ("300+1", 301), ("1+300", 301), ("4294967295+1", u32::MAX)] {
        assert_eq!(text.parse::<Scheme>(), Err(SchemeError::TooWide(width)), "{text}");
    }
}

#[test]
fn mirrors_and_rows() {
    assert_eq!(scheme(8, 2).mirror(), scheme(1, 2));
    for (blocks, rows) in [(0, 0), (1, 1), (8, 1), (9, 2), (16, 2), (17, 3)] {
        assert_eq!(scheme(8, 2).rows_for(blocks), rows, "{blocks}");
    }
}
