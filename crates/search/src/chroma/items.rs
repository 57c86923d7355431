//! Pieces as the server has them: an id, a text, a vector, and marks by which it filters.

use std::collections::HashMap;

use callgate_store::search::Told;
use serde_json::{Map, Value, json};

use crate::engine::{Found, Item};

/// Folders of a path that are marked, the outer ones first.
const FOLDERS_MAX: usize = 16;

/// What a program puts.
pub fn item(item: Item) -> (Told, Vec<f32>) {
    let chunk = item.chunk;
    let told = Told {
        key: chunk.key,
        path: chunk.path,
        lines: chunk.lines,
        lang: chunk.lang,
        commit: chunk.commit,
        etag: chunk.etag,
        tags: chunk.tags,
        hash: chunk.hash,
        text: chunk.text,
    };
    (told, item.embedding.unwrap_or_default())
}

/// The question that puts pieces.
pub fn upsert<'a>(items: impl Iterator<Item = (&'a Told, Vec<f32>)>) -> Value {
    let [mut ids, mut embeddings, mut documents, mut metadatas] = [const { Vec::new() }; 4];
    for (told, vector) in items {
        ids.push(json!(told.key));
        embeddings.push(json!(vector));
        documents.push(json!(told.text));
        metadatas.push(marks(told));
    }
    json!({
        "ids": ids,
        "embeddings": embeddings,
        "documents": documents,
        "metadatas": metadatas,
    })
}

/// What is known of a piece. The server compares marks as wholes, so a tag is one mark, and so
/// is a folder that the piece is in.
fn marks(told: &Told) -> Value {
    let mut marks = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            marks.insert(name.to_owned(), value);
        }
    };
    put("path", Some(json!(told.path)));
    put("tags", Some(json!(told.tags.join("\n"))));
    put("line_start", told.lines.map(|lines| json!(lines.0)));
    put("line_end", told.lines.map(|lines| json!(lines.1)));
    put("lang", told.lang.as_ref().map(|lang| json!(lang)));
    put("commit", told.commit.as_ref().map(|commit| json!(commit)));
    put("etag", told.etag.as_ref().map(|etag| json!(etag)));
    for tag in &told.tags {
        put(&format!("tag:{tag}"), Some(json!(true)));
    }
    for folder in folders(&told.path).take(FOLDERS_MAX) {
        put(&format!("in:{folder}"), Some(json!(true)));
    }
    Value::Object(marks)
}

/// `a/`, `a/b/` of `a/b/c`.
fn folders(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..=at])
}

/// What the server is to leave out. Of a prefix it knows the folders; the letters after them are
/// looked at here.
pub fn filter(prefix: &str, tags: &[String]) -> Option<Value> {
    let folder = folders(prefix).take(FOLDERS_MAX).last();
    let folder = folder.map(|folder| mark("in", folder));
    let tags: Vec<Value> = tags.iter().map(|tag| mark("tag", tag)).collect();
    let tags = match tags.len() {
        0 | 1 => tags.into_iter().next(),
        _ => Some(json!({ "$or": tags })),
    };
    match (folder, tags) {
        (Some(folder), Some(tags)) => Some(json!({ "$and": [folder, tags] })),
        (folder, tags) => folder.or(tags),
    }
}

fn mark(kind: &str, name: &str) -> Value {
    let mut mark = Map::new();
    mark.insert(format!("{kind}:{name}"), json!(true));
    Value::Object(mark)
}

/// What the server found, the nearest first; `None` if it is no answer.
pub fn found(told: &Value) -> Option<Vec<Found>> {
    let ids = told["ids"][0].as_array()?;
    let one = |(at, id): (usize, &Value)| {
        Some(Found {
            told: read(
                id.as_str()?,
                &told["metadatas"][0][at],
                &told["documents"][0][at],
            ),
            score: 1.0 - number(&told["distances"][0][at])?,
            vector: vector(&told["embeddings"][0][at]),
        })
    };
    ids.iter().enumerate().map(one).collect()
}

/// A text and, if it was asked for, a vector.
pub type Rest = (String, Option<Vec<f32>>);

/// Texts and vectors of pieces that were asked for by their ids; `None` if it is no answer.
pub fn rest(told: &Value) -> Option<HashMap<String, Rest>> {
    let ids = told["ids"].as_array()?;
    let one = |(at, id): (usize, &Value)| {
        let text = told["documents"][at].as_str().unwrap_or_default();
        let vector = vector(&told["embeddings"][at]);
        Some((id.as_str()?.to_owned(), (text.to_owned(), vector)))
    };
    ids.iter().enumerate().map(one).collect()
}

fn number(value: &Value) -> Option<f32> {
    value.as_f64().map(|value| value as f32)
}

fn vector(value: &Value) -> Option<Vec<f32>> {
    let all = value.as_array()?;
    Some(all.iter().filter_map(number).collect())
}

fn read(id: &str, marks: &Value, text: &Value) -> Told {
    let owned = |name: &str| marks[name].as_str().map(str::to_owned);
    let line = |name: &str| u32::try_from(marks[name].as_u64()?).ok();
    let tags = marks["tags"].as_str().unwrap_or_default();
    Told {
        key: id.to_owned(),
        path: owned("path").unwrap_or_else(|| id.to_owned()),
        lines: line("line_start").zip(line("line_end")),
        lang: owned("lang"),
        commit: owned("commit"),
        etag: owned("etag"),
        tags: tags.lines().map(str::to_owned).collect(),
        hash: [0; 16],
        text: text.as_str().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_marks() {
        assert_eq!(filter("", &[]), None);
        assert_eq!(filter("sr", &[]), None);
        assert_eq!(filter("src/co", &[]), Some(json!({ "in:src/": true })));
        let tags = ["a".to_owned(), "b".to_owned()];
        let either = json!({ "$or": [{ "tag:a": true }, { "tag:b": true }] });
        assert_eq!(filter("", &tags), Some(either.clone()));
        assert_eq!(
            filter("a/b/", &tags),
            Some(json!({ "$and": [{ "in:a/b/": true }, either] }))
        );
    }
}
