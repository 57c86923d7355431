//! Where a source may be cut, as its grammar has it: the lines of its functions and statements,
//! and which of them belong together. Only what has more lines than a piece may have is looked
//! into.
//!
//! A source is whatever somebody has written. So the work on one is bounded, by steps and not by
//! time: a file is cut alike on every machine. And no function goes down a tree by calling itself:
//! trees are as deep as their sources are nested.

use std::cell::Cell;
use std::ops::{ControlFlow, Range};

use tree_sitter::{Language, Node, ParseOptions, ParseState, Parser, Tree};

use crate::cut::LINES_MAX;

/// What a grammar is handed of a text at once.
const READ_BYTES: usize = 1024;
/// A text is read so many times over at most. Of 6,000 real ones none was twice.
const READINGS_MAX: usize = 4;
/// Bytes of a text for each hundred steps of its grammar, at least. Those of real ones were 49
/// or more, mostly 360.
const STEPPED_BYTES_MIN: usize = 24;
/// What short texts may take beyond that.
const SLACK: usize = 64;

/// The languages whose grammars are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grammar {
    Rust,
    Python,
    TypeScript,
    /// JavaScript too, which has nothing that is not in it.
    Tsx,
    Go,
}

impl Grammar {
    fn language(self) -> Language {
        match self {
            Self::Rust => tree_sitter_rust::LANGUAGE.into(),
            Self::Python => tree_sitter_python::LANGUAGE.into(),
            Self::TypeScript => tree_sitter_typescript::LANGUAGE_TYPESCRIPT.into(),
            Self::Tsx => tree_sitter_typescript::LANGUAGE_TSX.into(),
            Self::Go => tree_sitter_go::LANGUAGE.into(),
        }
    }

    fn is_script(self) -> bool {
        matches!(self, Self::TypeScript | Self::Tsx)
    }
}

/// Lines that are not cut apart, unless they are too many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unit {
    pub rows: Range<usize>,
    /// Belongs to what comes next: a comment above it, a signature.
    pub glued: bool,
    /// A whole function, class or the like.
    pub whole: bool,
    /// One that is too long begins here, or ends.
    pub begins: bool,
    pub ends: bool,
    /// Belongs to what comes next, if that follows at once (a comment) or anyway.
    pub leads: Option<Lead>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lead {
    Comment,
    Attribute,
}

/// The lines of a source in order; `None` where its grammar does not get through it.
pub fn units(text: &str, grammar: Grammar) -> Option<Vec<Unit>> {
    let tree = parsed(text, grammar)?;
    let mut walk = Walk {
        grammar,
        units: Vec::new(),
        open: Vec::new(),
    };
    walk.all(&tree);
    Some(walk.units)
}

fn parsed(text: &str, grammar: Grammar) -> Option<Tree> {
    let mut parser = Parser::new();
    parser.set_language(&grammar.language()).ok()?;
    let bytes = text.as_bytes();
    let reads_left = Cell::new(SLACK + bytes.len() / READ_BYTES * READINGS_MAX);
    let mut read = |at: usize, _| {
        reads_left.set(reads_left.get().saturating_sub(1));
        let to = bytes.len().min(at.saturating_add(READ_BYTES));
        match reads_left.get() {
            // As if it ended here: the next step is the last.
            0 => Default::default(),
            _ => bytes.get(at..to).unwrap_or_default(),
        }
    };
    let mut hundreds_left = SLACK + bytes.len() / STEPPED_BYTES_MIN;
    let mut step = |_: &ParseState| {
        hundreds_left = hundreds_left.saturating_sub(1);
        match hundreds_left == 0 || reads_left.get() == 0 {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    let options = ParseOptions::new().progress_callback(&mut step);
    let tree = parser.parse_with_options(&mut read, None, Some(options));
    tree.filter(|_| reads_left.get() > 0)
}

/// A node that is looked into.
struct Open {
    /// Where what it has found begins.
    first: usize,
    definition: bool,
    in_function: bool,
    /// Where its largest child begins: what is before that is a head, and goes with it.
    head_ends: usize,
}

struct Walk {
    grammar: Grammar,
    units: Vec<Unit>,
    open: Vec<Open>,
}

impl Walk {
    fn all(&mut self, tree: &Tree) {
        let mut cursor = tree.walk();
        loop {
            let node = cursor.node();
            let into = self.open.is_empty() || rows(&node).len() > LINES_MAX;
            if into && cursor.goto_first_child() {
                let open = self.opened(&node);
                self.open.push(open);
                continue;
            }
            self.take(&node);
            while !cursor.goto_next_sibling() {
                if !cursor.goto_parent() {
                    return;
                }
                self.close();
            }
        }
    }

    fn in_function(&self) -> bool {
        self.open.last().is_some_and(|open| open.in_function)
    }

    fn opened(&self, node: &Node<'_>) -> Open {
        let head_ends = match is_list(node.kind()) {
            true => 0,
            false => {
                let mut cursor = node.walk();
                let children = node.children(&mut cursor);
                // Of equals the last.
                let largest = children.max_by_key(|child| rows(child).len());
                largest.map_or(0, |child| child.start_byte())
            }
        };
        Open {
            first: self.units.len(),
            definition: self.is_definition(node),
            in_function: self.in_function() || is_function(node.kind()),
            head_ends,
        }
    }

    fn close(&mut self) {
        let Some(open) = self.open.pop().filter(|open| open.definition) else {
            return;
        };
        let last = self.units.len().saturating_sub(1);
        if let Some(unit) = self.units.get_mut(open.first.min(last)) {
            unit.begins = true;
        }
        if let Some(unit) = self.units.last_mut() {
            unit.ends = true;
        }
    }

    /// A node that is not looked into. What begins on the line where the one before ends goes
    /// with it.
    fn take(&mut self, node: &Node<'_>) {
        // Go ends its statements so.
        if node.kind() == "\n" {
            return;
        }
        let rows = rows(node);
        let head_ends = self.open.last().map_or(0, |open| open.head_ends);
        let opens = matches!(node.kind(), "{" | "[" | "(");
        let glued = opens || node.start_byte() < head_ends;
        let whole = self.is_definition(node);
        if let Some(last) = self.units.last_mut() {
            if rows.start < last.rows.end {
                last.rows.end = last.rows.end.max(rows.end);
                last.glued |= glued;
                last.whole |= whole;
                // More than a comment, then.
                last.leads = None;
                return;
            }
            last.glued |= match last.leads {
                Some(Lead::Attribute) => true,
                Some(Lead::Comment) => last.rows.end == rows.start,
                None => false,
            };
        }
        self.units.push(Unit {
            rows,
            glued,
            whole,
            leads: leads(node.kind()),
            ..Unit::default()
        });
    }

    /// True for what is a piece of its own, if it is not too small for one.
    fn is_definition(&self, node: &Node<'_>) -> bool {
        match node.kind() {
            "function_item" | "impl_item" | "trait_item" | "mod_item" | "struct_item"
            | "enum_item" | "union_item" | "macro_definition" => true,
            "function_definition" | "class_definition" | "decorated_definition" => true,
            "function_declaration" | "method_declaration" | "type_declaration" => true,
            "generator_function_declaration"
            | "class_declaration"
            | "abstract_class_declaration"
            | "interface_declaration"
            | "enum_declaration"
            | "type_alias_declaration"
            | "internal_module"
            | "method_definition" => true,
            "export_statement" => {
                let what = node.child_by_field_name("declaration");
                let what = what.or_else(|| node.child_by_field_name("value"));
                what.is_some_and(|what| has_function(&what) || self.is_definition_within(&what))
            }
            "lexical_declaration"
            | "variable_declaration"
            | "public_field_definition"
            | "field_definition" => !self.in_function() && has_function(node),
            // A suite of tests, a handler that is registered.
            "expression_statement" => self.grammar.is_script() && !self.in_function(),
            _ => false,
        }
    }

    /// An export has no export in it, so that this ends.
    fn is_definition_within(&self, node: &Node<'_>) -> bool {
        node.kind() != "export_statement" && self.is_definition(node)
    }
}

/// The lines of a node. The end of a comment may be the beginning of the next line.
fn rows(node: &Node<'_>) -> Range<usize> {
    let (from, to) = (node.start_position(), node.end_position());
    let ends_before = to.column == 0 && to.row > from.row;
    from.row..to.row + usize::from(!ends_before)
}

fn leads(kind: &str) -> Option<Lead> {
    match kind {
        "comment" | "line_comment" | "block_comment" => Some(Lead::Comment),
        "attribute_item" | "decorator" => Some(Lead::Attribute),
        _ => None,
    }
}

/// `a = () => {}` and `a = f(() => {})`.
fn has_function(node: &Node<'_>) -> bool {
    let value = match node.kind() {
        "lexical_declaration" | "variable_declaration" => node
            .named_child(0)
            .and_then(|child| child.child_by_field_name("value")),
        "public_field_definition" | "field_definition" => node.child_by_field_name("value"),
        _ => Some(*node),
    };
    let is_one = |kind: &str| is_function(kind) || matches!(kind, "class" | "call_expression");
    value.is_some_and(|value| is_one(value.kind()))
}

fn is_function(kind: &str) -> bool {
    matches!(
        kind,
        "function_item"
            | "closure_expression"
            | "function_definition"
            | "function_declaration"
            | "generator_function_declaration"
            | "method_definition"
            | "arrow_function"
            | "function_expression"
            | "generator_function"
            | "method_declaration"
            | "func_literal"
    )
}

/// Things of a kind, one after the other. Everything else is a head and what it is of.
fn is_list(kind: &str) -> bool {
    let ends = ["_file", "_list", "_body", "_block", "_element"];
    ends.iter().any(|end| kind.ends_with(end))
        || matches!(
            kind,
            "module"
                | "program"
                | "block"
                | "ERROR"
                | "object"
                | "object_type"
                | "interface_type"
                | "array"
                | "array_expression"
                | "arguments"
                | "literal_value"
                | "list"
                | "dictionary"
                | "token_tree"
                | "jsx_fragment"
        )
}
