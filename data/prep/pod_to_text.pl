#!/usr/bin/perl
# Turns Perl's manual pages (POD) into anyorder's corpus format: one sentence a line, a blank line after each
# document. The manuals are real English prose that every Debian and Ubuntu offers (package perl-doc), which makes
# them the quickstart's default text. Code examples (indented paragraphs) and command lines are left out.
#
# Usage: pod_to_text.pl FILE.pod... > corpus.txt
use strict;
use warnings;
binmode(STDOUT, ':encoding(UTF-8)');

my %ESCAPE = (lt => '<', gt => '>', verbar => '|', sol => '/');

# B<bold>, C<< code >>, L<text|target>, ... -> what a reader sees.
sub plain {
    my ($text) = @_;
    $text =~ s/E<(\w+)>/$ESCAPE{$1} \/\/ ''/ge;
    for (1 .. 4) {    # codes nest
        $text =~ s/[XZ]<[^<>]*>//g;
        $text =~ s/L<([^<>|]*)\|[^<>]*>/$1/g;
        $text =~ s/[A-Z]<<+\s+(.*?)\s+>>+/$1/gs;
        $text =~ s/[A-Z]<([^<>]*)>/$1/g;
    }
    $text =~ s/\s+/ /g;
    $text =~ s/^ | $//g;
    return $text;
}

# A sentence ends at . ! or ? before a space and a capital, quote or bracket; not after common abbreviations.
sub sentences {
    my ($text) = @_;
    $text =~ s/(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bvs)(?<!\bMr)(?<!\bDr)([.!?]["')]?) (?=["'(]?[A-Z])/$1\n/g;
    return split /\n/, $text;
}

for my $path (@ARGV) {
    open(my $file, '<:encoding(UTF-8)', $path) or die "pod_to_text: open '$path': $!\n";
    local $/ = '';    # paragraphs
    my $printed = 0;
    while (my $paragraph = <$file>) {
        chomp $paragraph;
        if ($paragraph =~ /^=head1/ && $printed) { print "\n"; $printed = 0; }
        $paragraph =~ s/^=(?:head\d|item)\s*(?:\*|\d+\.?)?\s*// or next if $paragraph =~ /^=/;
        next if $paragraph =~ /^\s/;
        for my $sentence (sentences(plain($paragraph))) {
            next if $sentence !~ /\w+\s+\w+\s+\w+/;    # fewer than three words: a bare heading or name
            print "$sentence\n";
            $printed = 1;
        }
    }
    print "\n" if $printed;
}
